/* SPDX-License-Identifier: Apache-2.0 */
/* bare-tls CERT KEY CA: accepts connections, does the TLS handshake with a client certificate required, says one byte,
 * and nothing else: what a core can do at best. Prints its port. One thread, OpenSSL's defaults. */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

struct conn {
    SSL *ssl;
    int fd;
    bool done;
};

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static int select_h2(SSL *ssl, const unsigned char **out, unsigned char *outlen, const unsigned char *in, unsigned inlen,
                     void *arg)
{
    static const unsigned char h2[] = { 2, 'h', '2' };

    (void) SSL_select_next_proto((unsigned char **) (uintptr_t) out, outlen, h2, sizeof(h2), in, inlen);
    return SSL_TLSEXT_ERR_OK;
}

static void drop(struct conn *c)
{
    (void) close(c->fd);
    SSL_free(c->ssl);
    free(c);
}

static void advance(struct conn *c)
{
    char buf[256];
    int r;

    if (!c->done) {
        r = SSL_accept(c->ssl);
        if (r != 1) {
            r = SSL_get_error(c->ssl, r);
            if (r != SSL_ERROR_WANT_READ && r != SSL_ERROR_WANT_WRITE)
                drop(c);
            return;
        }
        c->done = true;
        if (SSL_write(c->ssl, "x", 1) != 1) {
            drop(c);
            return;
        }
    }
    r = SSL_read(c->ssl, buf, sizeof(buf));
    if (r <= 0 && SSL_get_error(c->ssl, r) != SSL_ERROR_WANT_READ)
        drop(c);
}

int main(int argc, char **argv)
{
    struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(addr);
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    int ls = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), ep = epoll_create1(EPOLL_CLOEXEC), one = 1;
    struct epoll_event ev = { .events = EPOLLIN }, got[256];
    struct rlimit rl;

    if (argc != 4 || !ctx || SSL_CTX_use_certificate_chain_file(ctx, argv[1]) != 1 ||
        SSL_CTX_use_PrivateKey_file(ctx, argv[2], SSL_FILETYPE_PEM) != 1 || SSL_CTX_load_verify_file(ctx, argv[3]) != 1)
        die("bare-tls: certificate files");
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    (void) SSL_CTX_set_session_id_context(ctx, (const unsigned char *) "b", 1);
    (void) SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_alpn_select_cb(ctx, select_h2, NULL);
    (void) signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &rl) == 0) {
        rl.rlim_cur = rl.rlim_max;
        (void) setrlimit(RLIMIT_NOFILE, &rl);
    }
    if (ls < 0 || ep < 0 || bind(ls, (struct sockaddr *) &addr, sizeof(addr)) < 0 || listen(ls, 4096) < 0 ||
        getsockname(ls, (struct sockaddr *) &addr, &len) < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, ls, &ev) < 0)
        die("bare-tls: listen");
    (void) printf("%d\n", ntohs(addr.sin_port));
    (void) fflush(stdout);
    for (;;) {
        int n = epoll_wait(ep, got, 256, -1);
        for (int i = 0; i < n; i++) {
            struct conn *c = got[i].data.ptr;
            if (c) {
                advance(c);
                continue;
            }
            int fd = accept4(ls, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
            if (fd < 0)
                continue;
            c = calloc(1, sizeof(*c));
            if (!c || !(c->ssl = SSL_new(ctx)) || SSL_set_fd(c->ssl, fd) != 1)
                die("bare-tls: memory");
            c->fd = fd;
            (void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
            SSL_set_accept_state(c->ssl);
            ev = (struct epoll_event) { .events = EPOLLIN, .data.ptr = c };
            if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) < 0)
                die("bare-tls: epoll");
        }
    }
}
