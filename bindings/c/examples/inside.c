/* Makes the files "kept" and, inside and aborted, "lost": the outer transaction has the first. */
#define _GNU_SOURCE
#include <marram.h>

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static int make(marram_tx *tx, const char *name)
{
    int file = openat(marram_tx_fd(tx), name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

    return file < 0 ? -1 : close(file);
}

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, marram_message());
    return 1;
}

int main(int argc, char **argv)
{
    marram_tx *outer, *inner;

    if (argc != 2 || marram_tx_begin(argv[1], &outer) != MARRAM_OK)
        return failed("begin");
    if (marram_tx_begin_inside(outer, &inner) != MARRAM_OK || make(inner, "lost") != 0)
        return failed("inside");
    marram_tx_abort(inner);
    if (marram_tx_begin_inside(outer, &inner) != MARRAM_OK || make(inner, "kept") != 0)
        return failed("inside");
    if (marram_tx_commit(inner) != MARRAM_OK || marram_tx_commit(outer) != MARRAM_OK)
        return failed("commit");
    return 0;
}
