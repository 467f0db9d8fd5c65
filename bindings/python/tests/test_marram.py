"""The package on a real mount, whose directory is in MARRAM_TEST_PLACE."""

import errno
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

import marram

PLACE = os.environ["MARRAM_TEST_PLACE"]


class OnAMount(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.mkdtemp(dir=PLACE)
        self.write("a", "one\n")
        self.write("b", "two\n")

    def path(self, name):
        return os.path.join(self.place, name)

    def read(self, name):
        with open(self.path(name)) as file:
            return file.read()

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)

    def shown(self, name):
        """The path of a file from the root of the dataset, as conflicts have it."""
        return b"/" + os.fsencode(os.path.relpath(self.path(name), os.environ["MARRAM_TEST_MOUNT"]))


class Transactions(OnAMount):
    def test_two_files_change_together(self):
        with marram.transaction(self.place) as tx:
            with tx.open("a", "a") as file:
                file.write("more\n")
            os.rename("b", "c", src_dir_fd=tx.fileno(), dst_dir_fd=tx.fileno())
            self.assertEqual(sorted(os.listdir(tx.path)), ["a", "c"])
            self.assertEqual(sorted(os.listdir(self.place)), ["a", "b"])
            self.assertEqual(self.read("a"), "one\n")
        self.assertEqual((self.read("a"), self.read("c")), ("one\nmore\n", "two\n"))
        self.assertFalse(os.path.exists(self.path("b")))
        self.assertRaises(ValueError, tx.fileno)

    def test_an_exception_aborts(self):
        with self.assertRaises(ZeroDivisionError):
            with marram.transaction(self.place) as tx:
                os.unlink("a", dir_fd=tx.fileno())
                1 / 0
        tx = marram.transaction(self.place)
        os.unlink("a", dir_fd=tx.fileno())
        del tx
        self.assertEqual(self.read("a"), "one\n")

    def test_a_conflict_is_named(self):
        with self.assertRaises(marram.Refused) as refused:
            with marram.transaction(self.place) as tx:
                with tx.open("a") as file:
                    copied = file.read()
                with tx.open("copy", "w") as file:
                    file.write(copied)
                self.write("a", "theirs\n")
        paths = [conflict.path for conflict in refused.exception.conflicts]
        self.assertIn(self.shown("a"), paths)
        self.assertEqual(sorted(os.listdir(self.place)), ["a", "b"])

    def test_names_that_differ_do_not_meet(self):
        # Neither the library nor the directory's numbers count as a look at the directory.
        with marram.transaction(self.place) as tx:
            tx.open("mine", "w").close()
            self.write("theirs", "")
        self.assertEqual(sorted(os.listdir(self.place)), ["a", "b", "mine", "theirs"])

    def test_retry_loses_nothing(self):
        self.write("n", "0")
        calls = []

        def increase(tx):
            calls.append(tx.id)
            with tx.open("n") as file:
                number = int(file.read())
            with tx.open("n", "w") as file:
                file.write(str(number + 1))
            return number

        def work():
            for _ in range(4):
                marram.retry(self.place, increase, retries=1000)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.read("n"), "8")
        self.assertGreaterEqual(len(set(calls)), 8)

        def disturbed(tx):
            increase(tx)
            self.write("n", "20")

        self.assertRaises(marram.Refused, marram.retry, self.place, disturbed, 1)

    def test_descriptors_are_stale_after_the_end(self):
        tx = marram.transaction(self.place)
        kept = os.dup(tx.fileno())
        file = os.open("a", os.O_RDWR, dir_fd=kept)
        tx.commit()
        for use in (
            lambda: os.open("b", os.O_RDONLY, dir_fd=kept),
            lambda: os.write(file, b"x"),
            lambda: os.read(file, 1),
        ):
            with self.assertRaises(OSError) as stale:
                use()
            self.assertEqual(stale.exception.errno, errno.ESTALE)
        os.close(kept)
        os.close(file)

    def test_places_that_have_none(self):
        with marram.transaction(self.place) as tx:
            self.assertRaises(marram.Unsuitable, marram.transaction, tx.fileno())
        self.assertRaises(marram.Unsuitable, marram.transaction, "/proc")
        self.assertRaises(FileNotFoundError, marram.transaction, self.path("none"))
        opened = os.open(self.place, os.O_RDONLY)
        marram.transaction(opened).abort()
        os.close(opened)


class Inside(OnAMount):
    def test_one_inside_of_another_commits_into_it(self):
        with marram.transaction(self.place) as outer:
            with outer.begin_inside() as inner:
                os.unlink("a", dir_fd=inner.fileno())
            self.assertRaises(FileNotFoundError, os.open, "a", os.O_RDONLY, dir_fd=outer.fileno())
            self.assertEqual(self.read("a"), "one\n")
            with self.assertRaises(ValueError):
                with outer.begin_inside() as inner:
                    os.unlink("b", dir_fd=inner.fileno())
                    raise ValueError
            os.close(os.open("b", os.O_RDONLY, dir_fd=outer.fileno()))
        self.assertEqual(os.listdir(self.place), ["b"])


class Maps(OnAMount):
    def mapped(self, tx):
        file = os.open("a", os.O_RDWR, dir_fd=tx.fileno())
        shared = mmap.mmap(file, 0)
        os.close(file)
        return shared

    def test_what_is_mapped_is_committed(self):
        with marram.transaction(self.place) as tx:
            with self.mapped(tx) as shared:
                shared[0:3] = b"map"
        self.assertEqual(self.read("a"), "map\n")

    def test_a_map_keeps_its_process_from_the_commit(self):
        tx = marram.transaction(self.place)
        shared = self.mapped(tx)
        shared[0:3] = b"map"
        with self.assertRaises(marram.Mapped) as mapped:
            tx.commit()
        self.assertTrue(mapped.exception.files[0].endswith("/a"), mapped.exception.files)
        self.assertEqual(self.read("a"), "one\n")
        shared.close()

    def test_a_map_of_another_process_ends_with_the_transaction(self):
        tx = marram.transaction(self.place)
        shared = self.mapped(tx)
        shared[0:3] = b"map"
        wakes, wake = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(wakes, 1)
            shared[0:3] = b"too"
            os._exit(0)
        shared.close()
        tx.commit()
        os.write(wake, b"x")
        _, status = os.waitpid(child, 0)
        self.assertTrue(os.WIFSIGNALED(status), status)
        self.assertEqual(os.WTERMSIG(status), signal.SIGBUS)
        self.assertEqual(self.read("a"), "map\n")
        os.close(wakes)
        os.close(wake)


class Processes(OnAMount):
    def test_a_killed_program_leaves_nothing(self):
        program = (
            "import marram, os, sys, time\n"
            "tx = marram.transaction(sys.argv[1])\n"
            "os.unlink('a', dir_fd=tx.fileno())\n"
            "print('done', flush=True)\n"
            "time.sleep(600)\n"
        )
        words = [sys.executable, "-c", program, self.place]
        child = subprocess.Popen(words, stdout=subprocess.PIPE)
        self.assertEqual(child.stdout.readline(), b"done\n")
        child.kill()
        child.wait()
        child.stdout.close()
        self.assertEqual(self.read("a"), "one\n")

    def test_a_child_does_not_end_it(self):
        for end in (lambda tx: tx.abort(), lambda tx: tx.__del__()):
            tx = marram.transaction(self.place)
            child = os.fork()
            if child == 0:
                os.close(os.open("c", os.O_CREAT | os.O_WRONLY, dir_fd=tx.fileno()))
                end(tx)
                os._exit(0)
            os.waitpid(child, 0)
            os.unlink("c", dir_fd=tx.fileno())
            with tx.open("made", "a") as made:
                made.write("x")
            tx.commit()
        self.assertEqual(self.read("made"), "xx")

    def test_its_descriptors_are_not_inherited(self):
        conversation = marram._daemon.Conversation.__new__(marram._daemon.Conversation)
        conversation._read = b""
        conversation._socket, theirs = socket.socketpair()
        with open("/dev/null", "rb") as sent:
            socket.send_fds(theirs, [b"{}\n"], [sent.fileno()])
        _, descriptors = conversation.line()
        self.assertEqual(len(descriptors), 1)
        self.assertFalse(os.get_inheritable(descriptors[0]))
        os.close(descriptors[0])
        conversation.close()
        theirs.close()

    def test_the_owner_of_a_mount_is_not_read_from_the_name_of_its_source(self):
        line = b"36 27 0:47 / /m rw - fuse.marram user_id=7 rw,user_id=0,group_id=0,allow_other"
        self.assertEqual(marram._directory.Mount(line).owner, 0)


if __name__ == "__main__":
    unittest.main()
