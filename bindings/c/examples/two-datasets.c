/* Moves `next` to `current` in two datasets of one pool: in both, or in none. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <marram.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    marram_tx *tx;

    if (argc != 3 || marram_tx_begin_several((const char *const *)argv + 1, 2, &tx) != MARRAM_OK) {
        fprintf(stderr, "%s\n", argc == 3 ? marram_message() : "name two directories");
        return 1;
    }
    for (size_t number = 0; number < 2; number++) {
        int directory = marram_tx_fd_at(tx, number);
        if (renameat(directory, "next", directory, "current") != 0) {
            perror(argv[number + 1]);
            marram_tx_abort(tx);
            return 1;
        }
    }
    if (marram_tx_commit(tx) != MARRAM_OK) {
        fprintf(stderr, "%s\n", marram_message());
        return 1;
    }
    return 0;
}
