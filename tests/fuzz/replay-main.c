/* SPDX-License-Identifier: Apache-2.0 */

/* Runs a harness over the files of its corpus folders, so that the ordinary test run, with any
 * compiler, replays what fuzzing has found. With -Dfuzzer=true libFuzzer's main stands here. */

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = NULL;
    size_t len = 0, n;
    char part[4096];

    if (!f)
        return -1;
    while ((n = fread(part, 1, sizeof(part), f)) > 0) {
        uint8_t *more = realloc(data, len + n);
        if (!more)
            abort();
        data = more;
        memcpy(data + len, part, n);
        len += n;
    }
    (void) fclose(f);
    (void) LLVMFuzzerTestOneInput(data ? data : (const uint8_t *) "", len);
    free(data);
    return 0;
}

int main(int argc, char **argv)
{
    size_t count = 0;

    for (int i = 1; i < argc; i++) {
        DIR *dir = opendir(argv[i]);
        struct dirent *e;
        if (!dir) {
            perror(argv[i]);
            return 1;
        }
        while ((e = readdir(dir))) {
            char path[4096];
            if (e->d_name[0] == '.')
                continue;
            (void) snprintf(path, sizeof(path), "%s/%s", argv[i], e->d_name);
            if (replay_file(path) < 0) {
                perror(path);
                return 1;
            }
            count++;
        }
        (void) closedir(dir);
    }
    (void) printf("%zu inputs\n", count);
    return count > 0 ? 0 : 1;
}
