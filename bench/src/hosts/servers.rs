//! What the clients reach over their links: PostgreSQL with TLS, Redis, an SSH server, and the
//! servers of MooseFS and GlusterFS.
//!
//! All of them listen on the address of the server in its own network, so no port of the machine is
//! taken, and all that they store lies on one file system of the machine.

use super::clusters::{Gluster, Moose};
use super::contender::Contender;
use marram_lab::failure::{Context, Result, fail};
use marram_lab::hosts::{Hosts, Namespace, SERVER_ADDRESS};
use marram_lab::postgres::Database;
use marram_lab::process::{OwnedChild, command, require, run, text};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The password of the databases: between these namespaces it keeps nobody out.
pub(super) const PASSWORD: &str = "between-two-namespaces";
/// The owner of the databases.
pub(super) const USER: &str = "fs";
/// Databases: of our homes, of what JuiceFS says of files, of what is in them.
const DATABASES: [&str; 3] = ["trees", "juice", "juicedata"];

/// How long a server may take to listen.
const START_LIMIT: Duration = Duration::from_secs(30);

const POSTGRES_PORT: u16 = 5432;
const REDIS_PORT: u16 = 6379;
const SSH_PORT: u16 = 22;

/// The servers. They end with this.
pub(super) struct Servers {
    _redis: OwnedChild,
    _ssh: OwnedChild,
    _postgres: OwnedChild,
    _moose: Option<Moose>,
    _gluster: Option<Gluster>,
    /// The root that vouches for PostgreSQL.
    pub(super) root: PathBuf,
    /// The key by which the SSH server takes a client.
    pub(super) key: PathBuf,
    /// What the SSH server shows.
    pub(super) shown: PathBuf,
    /// Peers whose servers have not started, and why.
    pub(super) absent: Vec<(Contender, String)>,
}

impl Servers {
    /// Starts all of them, with what they store in `folder`.
    pub(super) fn start(hosts: &Hosts, folder: &Path) -> Result<Self> {
        require(&[("redis-server", "redis-server"), ("sshd", "openssh-server")])?;
        let network = hosts.server();
        let database = Database::make(folder, &folder.join("postgres"), 1, 1)?;
        let root = folder.join("root.pem");
        let postgres = start_postgres(&database, network, &root)?;
        let (ssh, key) = start_ssh(network, folder)?;
        let redis = start_redis(network, folder)?;
        let shown = folder.join("shown");
        std::fs::create_dir(&shown)?;
        let mut absent = Vec::new();
        let moose = Moose::start(network, folder);
        let gluster = Gluster::start(network, folder);
        let servers = Self {
            _redis: redis,
            _ssh: ssh,
            _postgres: postgres,
            _moose: known_or_absent(moose, Contender::MooseFs, &mut absent),
            _gluster: known_or_absent(gluster, Contender::GlusterFs, &mut absent),
            absent,
            root,
            key,
            shown,
        };
        for port in [POSTGRES_PORT, REDIS_PORT, SSH_PORT] {
            wait_for(network, port)?;
        }
        Ok(servers)
    }

    /// A home of ours in a schema of its own.
    pub(super) fn home(&self, schema: &str) -> String {
        let root = self.root.display();
        format!("postgres://{USER}@{SERVER_ADDRESS}/trees?schema={schema}&tls-ca={root}")
    }
}

fn known_or_absent<T>(
    started: Result<T>,
    peer: Contender,
    absent: &mut Vec<(Contender, String)>,
) -> Option<T> {
    started.map_err(|failure| absent.push((peer, failure.to_string()))).ok()
}

fn start_postgres(database: &Database, network: &Namespace, root: &Path) -> Result<OwnedChild> {
    let (certificate, key) = certificate(root)?;
    database.secret("server.crt", &certificate)?;
    database.secret("server.key", &key)?;
    let rules = database.data().join("pg_hba.conf");
    let mut text = std::fs::read_to_string(&rules).context(|| "pg_hba.conf")?;
    text.push_str("hostssl all all 10.77.0.0/16 scram-sha-256\n");
    std::fs::write(&rules, text)?;
    let address = format!("listen_addresses={SERVER_ADDRESS}");
    let settings = [
        &*address,
        "ssl=on",
        "ssl_cert_file=server.crt",
        "ssl_key_file=server.key",
        "max_connections=300",
    ];
    let server = database.start_within(network, &settings)?;
    database.query(&format!("CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'"))?;
    for name in DATABASES {
        database.query(&format!("CREATE DATABASE {name} OWNER {USER}"))?;
    }
    Ok(server)
}

/// A root, written to a file, and a certificate with its key that it vouches for.
fn certificate(file: &Path) -> Result<(String, String)> {
    let doing = || "a certificate of the server";
    let named = |name: &str| {
        let mut named = DistinguishedName::new();
        named.push(DnType::CommonName, name);
        named
    };
    let mut params = CertificateParams::new(Vec::new()).context(doing)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name = named("a root of the race between hosts");
    let key = KeyPair::generate().context(doing)?;
    let root = params.self_signed(&key).context(doing)?;
    std::fs::write(file, root.pem())?;
    let issuer = Issuer::new(params, key);
    let mut params = CertificateParams::new([SERVER_ADDRESS.to_owned()]).context(doing)?;
    // With the name of its root it would count as one that vouches for itself.
    params.distinguished_name = named("the server of the race between hosts");
    let key = KeyPair::generate().context(doing)?;
    let certificate = params.signed_by(&key, &issuer).context(doing)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// Its key and that of its clients are made for this run.
fn start_ssh(network: &Namespace, folder: &Path) -> Result<(OwnedChild, PathBuf)> {
    let folder = folder.join("ssh");
    std::fs::create_dir(&folder)?;
    // It wants this folder, which the service of the system makes otherwise.
    std::fs::create_dir_all("/run/sshd")?;
    let keys = ["of-host", "of-user"].map(|name| folder.join(name));
    for key in &keys {
        run(command(&["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f"]).arg(key))?;
    }
    let [host_key, key] = keys;
    let file = folder.join("sshd_config");
    let config = format!(
        "ListenAddress {SERVER_ADDRESS}:{SSH_PORT}\nHostKey {}\nAuthorizedKeysFile {}.pub\n\
         StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n\
         PidFile none\nMaxStartups 100\nSubsystem sftp internal-sftp\n",
        host_key.display(),
        key.display()
    );
    std::fs::write(&file, config)?;
    let program = text(&mut command(&["sh", "-c", "PATH=$PATH:/usr/sbin command -v sshd"]))?;
    let mut serve = command(&[&program, "-D", "-E"]);
    serve.arg(folder.join("log")).arg("-f").arg(&file);
    Ok((OwnedChild::start(&mut network.around(&serve))?, key))
}

/// Each answer is durable: `appendfsync always`.
fn start_redis(network: &Namespace, folder: &Path) -> Result<OwnedChild> {
    let folder = folder.join("redis");
    std::fs::create_dir(&folder)?;
    let port = REDIS_PORT.to_string();
    let mut serve = command(&["redis-server", "--bind", SERVER_ADDRESS, "--port", &port]);
    serve.args(["--protected-mode", "no", "--save", "", "--appendonly", "yes"]);
    serve.args(["--appendfsync", "always", "--daemonize", "no", "--dir"]).arg(&folder);
    serve.arg("--logfile").arg(folder.join("log"));
    OwnedChild::start(&mut network.around(&serve))
}

/// Waits for a server to listen.
pub(super) fn wait_for(network: &Namespace, port: u16) -> Result<()> {
    let began = Instant::now();
    network.within(|| {
        while TcpStream::connect((SERVER_ADDRESS, port)).is_err() {
            if began.elapsed() > START_LIMIT {
                return fail(format!("no server on port {port} in {START_LIMIT:?}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    })
}
