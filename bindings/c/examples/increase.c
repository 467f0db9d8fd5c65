/* Adds 1 to the number in the file "n" of a directory, again if others were in the way. */
#define _GNU_SOURCE
#include <marram.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int increase(marram_tx *tx, void *data)
{
    char text[32] = "";
    int file = openat(marram_tx_fd(tx), "n", O_RDWR | O_CLOEXEC);

    (void)data;
    if (file < 0 || read(file, text, sizeof text - 1) < 0)
        return -1;
    snprintf(text, sizeof text, "%ld", strtol(text, NULL, 10) + 1);
    if (pwrite(file, text, strlen(text), 0) != (ssize_t)strlen(text))
        return -1;
    return close(file);
}

int main(int argc, char **argv)
{
    if (argc != 2 || marram_retry(argv[1], 1000, increase, NULL) != MARRAM_OK) {
        fprintf(stderr, "%s\n", argc == 2 ? marram_message() : "a directory is wanted");
        return 1;
    }
    return 0;
}
