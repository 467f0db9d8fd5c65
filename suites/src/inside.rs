//! Databases and an installer inside of transactions: SQLite without its own journal, PostgreSQL
//! from initdb on, and npm. Each ends well, by failure, by SIGKILL, and by a full pool. What ended
//! well is sound by the program's own check, in the transaction and after it; of all else nothing
//! was ever there.
//!
//! The packages of npm are made here, so nothing is fetched.

use super::{GIB, Setting, step};
use marram_lab::failure::{Result, fail};
use marram_lab::process::{OwnedChild, command, ended, require, run, tail, text};
use marram_lab::seed::Seed;
use marram_lab::subject::{Making, Marram, Subject};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The longest that anything here may take after it was killed.
const END_MAX: Duration = Duration::from_secs(60);
/// What is left free for the program of a pool that gets full, in bytes.
const LEFT_BYTES: u64 = 3 << 20;

/// 100 inserts in one transaction of the file system, and nobody's journal.
const SQLITE: &str = "
    statements() {
        echo 'PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;'
        echo 'CREATE TABLE IF NOT EXISTS item(id INTEGER PRIMARY KEY, body BLOB);'
        echo 'CREATE INDEX IF NOT EXISTS by_size ON item(length(body));'
        for n in $(seq 100); do echo 'INSERT INTO item(body) VALUES(randomblob(60000));'; done
    }
    statements | sqlite3 -bail items.db > said
    test \"$(sqlite3 items.db 'PRAGMA integrity_check')\" = ok";
const SQLITE_CHECK: &str = "
    test \"$(sqlite3 items.db 'PRAGMA integrity_check')\" = ok
    test \"$(sqlite3 items.db 'SELECT count(*) % 100 FROM item')\" = 0";

/// A cluster, its server, a load, a sound end.
const POSTGRES: &str = "
    mkdir cluster && chown postgres cluster
    server initdb --data-checksums --no-locale -D \"$PWD/cluster\" > said
    server pg_ctl -s -w -D \"$PWD/cluster\" -l \"$HOST/log\" \\
        -o \"-c listen_addresses= -c unix_socket_directories=$HOST\" start
    trap 'server pg_ctl -s -m immediate -D \"$PWD/cluster\" stop 2>/dev/null || true' EXIT
    server pgbench -i -q -s 1 postgres 2>> said
    server pgbench -c 2 -t 50 -n postgres >> said 2>&1
    server pg_amcheck --install-missing --heapallindexed -d postgres
    server pg_ctl -s -m fast -D \"$PWD/cluster\" stop
    trap - EXIT";
const POSTGRES_CHECK: &str = "
    server pg_checksums --check -D \"$PWD/cluster\" > /dev/null
    server pg_ctl -s -w -D \"$PWD/cluster\" -l \"$HOST/log\" \\
        -o \"-c listen_addresses= -c unix_socket_directories=$HOST\" start
    server pg_amcheck --heapallindexed -d postgres && sound=yes || sound=no
    rows=$(server psql -XAt -c 'SELECT count(*) FROM pgbench_history' postgres)
    server pg_ctl -s -m fast -D \"$PWD/cluster\" stop
    test $sound = yes && test \"$rows\" = 100";

/// A package that needs another one, both from files.
const NPM: &str = "
    mkdir -p app && cd app
    echo '{\"name\":\"app\",\"version\":\"1.0.0\",\"private\":true}' > package.json
    npm install --offline --no-audit --no-fund --cache \"$HOST/npm\" \"$HOST/inner-1.0.0.tgz\" \\
        \"$HOST/outer-1.0.0.tgz\" >&2
    npm ls --all --cache \"$HOST/npm\" > ../said";
const NPM_CHECK: &str = "
    cd app && npm ls --all --cache \"$HOST/npm\" > /dev/null
    test \"$(node -e 'process.stdout.write(require(\"outer\"))')\" = outer+inner
    test \"$(cat node_modules/outer/files/* | wc -l)\" = 800";

/// Makes the packages.
const PACK: &str = "
    mkdir -p inner outer/files && for n in $(seq 800); do
        head -c 11000 /dev/urandom | base64 -w 0 > outer/files/$n; echo >> outer/files/$n; done
    echo '{\"name\":\"inner\",\"version\":\"1.0.0\",\"main\":\"main.js\"}' > inner/package.json
    echo 'module.exports = \"inner\"' > inner/main.js
    echo '{\"name\":\"outer\",\"version\":\"1.0.0\",\"main\":\"main.js\",
        \"peerDependencies\":{\"inner\":\"1.0.0\"}}' > outer/package.json
    echo 'module.exports = \"outer+\" + require(\"inner\")' > outer/main.js
    npm pack --cache \"$PWD/npm\" ./inner ./outer > /dev/null 2>&1";

/// A program that knows nothing of transactions.
struct Program {
    name: &'static str,
    line: &'static str,
    check: &'static str,
}

const PROGRAMS: [Program; 3] = [
    Program { name: "sqlite", line: SQLITE, check: SQLITE_CHECK },
    Program { name: "postgresql", line: POSTGRES, check: POSTGRES_CHECK },
    Program { name: "npm install", line: NPM, check: NPM_CHECK },
];

/// All of them, each killed 12 times, or twice when short.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    setting.marram_only()?;
    require(&[
        ("sqlite3", "sqlite3"),
        ("pg_ctlcluster", "postgresql"),
        ("npm", "npm"),
        ("setpriv", "util-linux"),
    ])?;
    let host = setting.folder.join("host");
    std::fs::create_dir(&host)?;
    run(command(&["chown", "postgres"]).arg(&host))?;
    run(command(&["sh", "-euc", PACK]).current_dir(&host))?;
    let mut making = Making::sized(GIB);
    making.mount_words = ["-o", "allow_other"].map(String::from).into();
    let marram = Marram::make(&setting.folder.join("subject"), &making)?;
    let mut random = Seed::new(setting.seed);
    let mut inside = Inside { marram, host };
    for program in &PROGRAMS {
        inside.run(program, setting.scaled(12, 2), &mut random)?;
    }
    inside.marram.unmount()?;
    inside.marram.check()
}

/// The mount, and a folder that no transaction has.
struct Inside {
    marram: Marram,
    host: PathBuf,
}

impl Inside {
    fn root(&self) -> &Path {
        self.marram.root()
    }

    /// What each line can use: `server`, a program of PostgreSQL by its own user.
    fn with_tools(&self, line: &str) -> String {
        format!(
            "HOST={}; export HOST PGHOST=$HOST PGUSER=postgres
             bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
             server() {{
                 program=$1; shift
                 (setpriv --reuid postgres --regid postgres --init-groups \"$bin/$program\" \"$@\")
             }}
             {line}",
            self.host.display()
        )
    }

    fn transaction(&self, line: &str) -> Command {
        let line = self.with_tools(line);
        let mut run = self.marram.command(&["tx", "run", "--kill", "--", "sh", "-euc", &line]);
        run.current_dir(self.root());
        run
    }

    /// Names, modes, owners and bytes of all of it, in a few digits.
    fn state(&self) -> Result<String> {
        let line = "tar --sort=name --mtime=@0 --numeric-owner -cf - . | sha256sum";
        text(command(&["sh", "-c", line]).current_dir(self.root()))
    }

    fn run(&mut self, program: &Program, kills: u64, random: &mut Seed) -> Result<()> {
        let Program { name, line, check } = program;
        let before = self.state()?;
        let began = Instant::now();
        self.fails(&format!("({line})\nexit 3"), &before)?;
        let took = began.elapsed();
        self.full(program, &before)?;
        for round in 0..kills {
            self.killed(line, took, random, round)?;
            if self.state()? != before {
                return fail(format!("{name} was killed, and left something"));
            }
        }
        run(&mut self.transaction(&format!("({line})\n({check})")))?;
        let sound = self.with_tools(check);
        run(command(&["sh", "-euc", &sound]).current_dir(self.root()))?;
        step(&format!(
            "{name}: sound when it ended well; failed, full, {kills} kills: never there"
        ));
        Ok(())
    }

    /// Fails, and nothing of it is there.
    fn fails(&self, line: &str, before: &str) -> Result<()> {
        let end = ended(&mut self.transaction(line))?;
        match (end.status.success(), self.state()? == before) {
            (false, true) => Ok(()),
            (true, _) => fail(format!("`{line}` ended well")),
            (_, false) => fail(format!("it failed, and left something: {}", tail(&end))),
        }
    }

    /// The pool gets full in the middle.
    fn full(&mut self, program: &Program, before: &str) -> Result<()> {
        let filler = self.root().join("filler");
        let fill = format!(
            "cat /dev/urandom > filler 2>/dev/null || true; truncate -s -{LEFT_BYTES} filler
             sync filler"
        );
        run(command(&["sh", "-c", &fill]).current_dir(self.root()))?;
        let end = ended(&mut self.transaction(program.line))?;
        std::fs::remove_file(&filler)?;
        self.marram.sync()?;
        match (end.status.success(), self.state()? == before) {
            (false, true) => Ok(()),
            (true, _) => fail(format!("{} ended well in a full pool", program.name)),
            (_, false) => fail(format!("a full pool, and it left something: {}", tail(&end))),
        }
    }

    /// The run, all of its processes or the daemon is killed within the first part of its time.
    fn killed(&mut self, line: &str, took: Duration, random: &mut Seed, round: u64) -> Result<()> {
        let mut started = self.transaction(line);
        std::os::unix::process::CommandExt::process_group(&mut started, 0);
        let mut started = OwnedChild::start(started.stdout(Stdio::null()).stderr(Stdio::null()))?;
        let hundredths = u32::try_from(random.between(5, 60)).unwrap_or(5);
        std::thread::sleep(took * hundredths / 100);
        let group = format!("-{}", started.id());
        match round % 3 {
            0 => started.kill()?,
            1 => {
                self.marram.kill()?;
                self.marram.mount()?;
            }
            _ => {
                let _has_ended = command(&["kill", "-KILL", "--", &group]).status()?;
            }
        }
        let is_there = started.wait(END_MAX)?.success();
        let _has_ended =
            command(&["kill", "-KILL", "--", &group]).stderr(Stdio::null()).status()?;
        match is_there {
            true => fail("it was to be killed, and has ended well"),
            false => Ok(()),
        }
    }
}
