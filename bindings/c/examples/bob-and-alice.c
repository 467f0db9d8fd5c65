/*
 * Listing 5.1 of the thesis on transactional file systems, as a program that runs: two files
 * are renamed in one transaction. If one rename fails, the other has not happened.
 *
 * Its two file systems are two directories of one dataset here: "zfs" has the file bob, and
 * "stick" the file alice.
 */
#define _GNU_SOURCE
#include <marram.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int give_up(marram_tx *tx, const char *what)
{
    perror(what);
    marram_tx_abort(tx);
    return 1;
}

int main(int argc, char **argv)
{
    marram_tx *tx;
    marram_status status;
    int zfs, fat;

    if (argc != 2) {
        fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        return 2;
    }
    /* tx (zfs), tx.addObjectSet (fat), tx.begin () */
    if (marram_tx_begin(argv[1], &tx) != MARRAM_OK) {
        fprintf(stderr, "%s\n", marram_message());
        return 1;
    }
    printf("transaction %s\n", marram_tx_id(tx));
    /* tx.openObject (zfs, ...), tx.openObject (fat, ...) */
    zfs = openat(marram_tx_fd(tx), "zfs", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (zfs < 0)
        return give_up(tx, "zfs");
    fat = openat(marram_tx_fd(tx), "stick", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fat < 0)
        return give_up(tx, "stick");
    /* tx.renameObject (zfs, zfsId, "bob", "alice"), tx.renameObject (fat, fatId, "alice", "bob") */
    if (renameat(zfs, "bob", zfs, "alice") != 0)
        return give_up(tx, "zfs/bob");
    if (renameat(fat, "alice", fat, "bob") != 0)
        return give_up(tx, "stick/alice");
    /* tx.closeObject (zfsId), tx.closeObject (fatId) */
    close(zfs);
    close(fat);
    /* tx.commit () */
    status = marram_tx_commit(tx);
    if (status != MARRAM_OK) {
        fprintf(stderr, "%s\n", marram_message());
        for (size_t at = 0; marram_conflict(at) != NULL; at++)
            fprintf(stderr, "%s\n", marram_conflict(at));
        return status == MARRAM_UNKNOWN ? 3 : 1;
    }
    return 0;
}
