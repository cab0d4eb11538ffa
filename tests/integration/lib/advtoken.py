# SPDX-License-Identifier: Apache-2.0
"""An identity provider for tests: keys, a set of them over real https, and tokens signed with them. Signs with openssl."""
import base64
import http.server
import json
import os
import ssl
import subprocess
import threading
import time


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _der_int(data, at):
    n = data[at + 1]
    return int.from_bytes(data[at + 2:at + 2 + n], "big"), at + 2 + n


class Idp:
    """`https://localhost:<port>`, with a certificate of @ca. `published` is the kids that the set has; `broken` makes it
    answer 500."""

    def __init__(self, ca, folder):
        self.dir = folder
        os.makedirs(folder, exist_ok=True)
        self.keys = {}
        self.published = []
        self.broken = False
        self.asked = 0
        idp = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                idp.asked += 1
                body = idp.jwks().encode()
                self.send_response(500 if idp.broken else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        cert, key = ca.issue("idp", "DNS:localhost", "IP:127.0.0.1")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://localhost:{self.server.server_address[1]}/jwks.json"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def run(self, *args, data=None):
        return subprocess.run(["openssl", *args], input=data, check=True, capture_output=True).stdout

    def add_key(self, kid, alg="ES256", publish=True):
        kind = {"ES256": ["EC", "-pkeyopt", "ec_paramgen_curve:P-256"], "RS256": ["RSA"], "EdDSA": ["ED25519"]}[alg]
        path = f"{self.dir}/{kid}.pem"
        self.run("genpkey", "-algorithm", *kind, "-out", path)
        self.keys[kid] = (alg, path)
        if publish:
            self.published.append(kid)

    def jwk(self, kid):
        alg, path = self.keys[kid]
        der = self.run("pkey", "-in", path, "-pubout", "-outform", "DER")
        if alg == "ES256":
            k = {"kty": "EC", "crv": "P-256", "x": b64(der[-64:-32]), "y": b64(der[-32:])}
        elif alg == "EdDSA":
            k = {"kty": "OKP", "crv": "Ed25519", "x": b64(der[-32:])}
        else:
            n = self.run("rsa", "-in", path, "-noout", "-modulus").decode().strip().split("=")[1]
            k = {"kty": "RSA", "n": b64(bytes.fromhex(n)), "e": "AQAB"}
        return {"kid": kid, "use": "sig", **k}

    def jwks(self):
        return json.dumps({"keys": [self.jwk(k) for k in self.published]})

    def sign(self, kid, text):
        alg, path = self.keys[kid]
        if alg == "EdDSA":
            with open(f"{self.dir}/text", "wb") as f:
                f.write(text)
            return self.run("pkeyutl", "-sign", "-inkey", path, "-rawin", "-in", f"{self.dir}/text")
        sig = self.run("dgst", "-sha256", "-sign", path, data=text)
        if alg == "ES256":
            r, at = _der_int(sig, 2)
            s, _ = _der_int(sig, at)
            sig = r.to_bytes(32, "big") + s.to_bytes(32, "big")
        return sig

    def token(self, kid, sub="alice", header=None, life=300, **claims):
        """A good token unless @header or @claims say otherwise; a claim of None is left out."""
        now = time.time()
        c = {"iss": "https://idp.test", "aud": "advisor", "sub": sub, "iat": int(now), "exp": int(now + life)}
        c.update(claims)
        h = {"alg": self.keys[kid][0], "kid": kid, "typ": "JWT", **(header or {})}
        text = ".".join(b64(json.dumps({k: v for k, v in d.items() if v is not None}).encode()) for d in (h, c))
        return f"{text}.{b64(self.sign(kid, text.encode()))}"


def bearer(token):
    return [("authorization", f"Bearer {token}")]
