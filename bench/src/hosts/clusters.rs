//! MooseFS and GlusterFS: peers whose servers are programs of their own, in the network of the
//! server. Each has one server, as all others have.

use super::servers::wait_for;
use marram_lab::failure::{Context, Result};
use marram_lab::hosts::{Namespace, SERVER_ADDRESS};
use marram_lab::process::{OwnedChild, command, require, run};
use std::path::{Path, PathBuf};
use std::process::Command;

const MOOSE_PORT: u16 = 9421;
const MOOSE_CHUNKS_PORT: u16 = 9422;
const GLUSTER_PORT: u16 = 24_007;
/// The volume of GlusterFS.
const VOLUME: &str = "race";

/// The servers of MooseFS. They end with this.
pub(super) struct Moose {
    _chunks: OwnedChild,
    _master: OwnedChild,
}

impl Moose {
    /// Starts both. A change of a name is on the disk of the master when it is answered, and a
    /// file is synced before its close is.
    pub(super) fn start(network: &Namespace, folder: &Path) -> Result<Moose> {
        require(&[("mfsmaster", "moosefs-master"), ("mfschunkserver", "moosefs-chunkserver")])?;
        let folder = folder.join("moosefs");
        let [master, chunks, data] = ["master", "chunks", "data"].map(|it| folder.join(it));
        for made in [&folder, &master, &chunks, &data] {
            std::fs::create_dir(made).context(|| made.display().to_string())?;
        }
        // What a file system of its own begins with.
        std::fs::write(master.join("metadata.mfs"), "MFSM NEW")?;
        let write = |name: &str, text: &str| -> Result<PathBuf> {
            let file = folder.join(name);
            std::fs::write(&file, text).context(|| file.display().to_string())?;
            Ok(file)
        };
        let exports = write("exports", "* / rw,alldirs,maproot=0\n")?;
        let disks = write("disks", &format!("{}\n", data.display()))?;
        let of_master = write(
            "master.cfg",
            &format!(
                "WORKING_USER = root\nWORKING_GROUP = root\nDATA_PATH = {}\n\
                 EXPORTS_FILENAME = {}\nCHANGELOG_SAVE_MODE = 2\n",
                master.display(),
                exports.display()
            ),
        )?;
        let of_chunks = write(
            "chunks.cfg",
            &format!(
                "WORKING_USER = root\nWORKING_GROUP = root\nDATA_PATH = {}\n\
                 HDD_CONF_FILENAME = {}\nHDD_FSYNC_BEFORE_CLOSE = 1\n\
                 MASTER_HOST = {SERVER_ADDRESS}\nCSSERV_LISTEN_HOST = {SERVER_ADDRESS}\n",
                chunks.display(),
                disks.display()
            ),
        )?;
        let serve = |program: &str, settings: &Path| {
            let mut serve = command(&[program, "-f", "-c"]);
            serve.arg(settings).arg("start");
            OwnedChild::start(&mut network.around(&serve))
        };
        let master = serve("mfsmaster", &of_master)?;
        wait_for(network, MOOSE_PORT)?;
        let chunks = serve("mfschunkserver", &of_chunks)?;
        wait_for(network, MOOSE_CHUNKS_PORT)?;
        Ok(Moose { _chunks: chunks, _master: master })
    }

    /// What mounts it.
    pub(super) fn mount(place: &Path) -> Command {
        let mut mount = command(&["mfsmount", "-f", "-H", SERVER_ADDRESS]);
        mount.arg(place);
        mount
    }
}

/// The servers of GlusterFS. They end with this.
pub(super) struct Gluster {
    _daemon: OwnedChild,
}

impl Gluster {
    /// Starts them, with a volume of one brick.
    pub(super) fn start(network: &Namespace, folder: &Path) -> Result<Gluster> {
        require(&[("glusterd", "glusterfs-server"), ("gluster", "glusterfs-cli")])?;
        let folder = folder.join("glusterfs");
        let (work, brick) = (folder.join("work"), folder.join("brick"));
        for made in [&folder, &work, &brick] {
            std::fs::create_dir(made).context(|| made.display().to_string())?;
        }
        let settings = folder.join("glusterd.vol");
        let text = format!(
            "volume management\n    type mgmt/glusterd\n    option working-directory {0}\n    \
             option run-directory {0}\n    option transport-type socket\nend-volume\n",
            work.display()
        );
        std::fs::write(&settings, text)?;
        let mut serve = command(&["glusterd", "-N", "-f"]);
        serve.arg(&settings).arg("-p").arg(folder.join("pid"));
        serve.arg("-l").arg(folder.join("log"));
        let daemon = OwnedChild::start(&mut network.around(&serve))?;
        wait_for(network, GLUSTER_PORT)?;
        let gluster = Gluster { _daemon: daemon };
        let brick = format!("{SERVER_ADDRESS}:{}", brick.display());
        run(&mut ask(&["volume", "create", VOLUME, &brick, "force"]))?;
        run(&mut ask(&["volume", "start", VOLUME]))?;
        Ok(gluster)
    }

    /// What mounts it.
    pub(super) fn mount(place: &Path, log: &Path) -> Command {
        let mut mount = command(&["glusterfs", "-N", "--volfile-server", SERVER_ADDRESS]);
        mount.args(["--volfile-id", VOLUME, "-l"]).arg(log).arg(place);
        mount
    }
}

impl Drop for Gluster {
    fn drop(&mut self) {
        // The server of the brick is a daemon of its own.
        let stopped = ask(&["volume", "stop", VOLUME, "force"]).output();
        if !stopped.is_ok_and(|output| output.status.success()) {
            eprintln!("warning: the volume of GlusterFS was not stopped");
        }
    }
}

fn ask(words: &[&str]) -> Command {
    let mut ask = command(&["gluster", "--mode=script"]);
    ask.args(words);
    ask
}
