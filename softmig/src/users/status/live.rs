//! The monitors' figures: this node's from its monitor or from the files that it leaves to each job's user, those of other nodes
//! from their exporters where policy.toml says where they answer.

use super::picture::Shown;
use crate::ask::cluster::all::Cluster;
use crate::ask::node::Node;
use anyhow::{Context, ensure};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use softmig_node::job::JobId;
use softmig_node::node::Node as ThisNode;
use softmig_node::{usage_file, usage_socket};
use softmig_policy::config::metrics::Exporters;
use softmig_policy::slurm::hostlist;
use softmig_usage as usage;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// How long an exporter may take, and how long all together.
const PATIENCE: Duration = Duration::from_secs(2);
/// Exporters that are asked at once.
const AT_ONCE: usize = 64;
/// An answer is far shorter.
const LONGEST: u64 = 16 << 20;

/// The figures of this node, and of all nodes with slices of the listed jobs. Then what is not known, and why.
pub(super) fn figures(
    cluster: &Cluster,
    shown: &Shown,
    exporters: Option<&Exporters>,
) -> (Vec<usage::Node>, Vec<String>) {
    let this = ThisNode::this_machine();
    let socket = usage_socket::ask(&this).into_iter().collect();
    let (mut figures, notes) = match exporters {
        Some(exporters) => with_exporters(socket, cluster, shown, exporters),
        None => (socket, Vec::new()),
    };
    let own = own_files(&this, cluster, shown, &figures);
    figures.extend(own);
    (figures, notes)
}

/// The files that the monitor leaves for the user who looks, of jobs that no answer of this node tells of: the socket answers root and the
/// group softmig alone.
fn own_files(
    this: &ThisNode,
    cluster: &Cluster,
    shown: &Shown,
    figures: &[usage::Node],
) -> Vec<usage::Node> {
    let is_told = |file: &usage::Node| {
        let of_this = figures.iter().filter(|told| told.node == file.node);
        let mut told = of_this.flat_map(|node| &node.jobs);
        told.any(|told| file.jobs.iter().any(|job| job.job == told.job))
    };
    let own = cluster.jobs.iter().filter(|job| {
        let is_own = shown.own.as_ref() == Some(&job.user);
        is_own && shown.has(job) && !job.waits()
    });
    own.filter_map(|job| usage_file::read(this, JobId::parse(&job.id.to_string())?).ok()?)
        .filter(|file| !is_told(file))
        .collect()
}

/// The figures that are there, and those of the exporters of other nodes with slices of the listed jobs.
fn with_exporters(
    mut figures: Vec<usage::Node>,
    cluster: &Cluster,
    shown: &Shown,
    exporters: &Exporters,
) -> (Vec<usage::Node>, Vec<String>) {
    let listed = cluster
        .jobs
        .iter()
        .filter(|job| shown.has(job) && job.slice().is_some());
    let names: BTreeSet<&str> = listed
        .flat_map(|job| &job.places)
        .map(|(node, _)| node.as_str())
        .collect();
    let is_known = |node: &Node| figures.iter().any(|own| node.is_machine(&own.node));
    let nodes: Vec<Node> = (cluster.nodes.iter())
        .filter(|node| names.contains(node.name.as_str()) && !is_known(node))
        .cloned()
        .collect();
    match ask(exporters, nodes) {
        Ok((told, notes)) => {
            figures.extend(told);
            (figures, notes)
        }
        Err(error) => (figures, vec![format!("what jobs used: {error:#}")]),
    }
}

/// Asks each node's exporter, and waits for all of them no longer than for one.
fn ask(exporters: &Exporters, nodes: Vec<Node>) -> anyhow::Result<(Vec<usage::Node>, Vec<String>)> {
    let agent = agent(exporters)?;
    let count = nodes.len();
    let work = Arc::new((exporters.clone(), nodes, AtomicUsize::new(0)));
    let (sender, answers) = mpsc::channel();
    for _ in 0..count.min(AT_ONCE) {
        let (agent, work, sender) = (agent.clone(), Arc::clone(&work), sender.clone());
        // A thread that comes too late ends with the command.
        std::thread::spawn(move || {
            let (exporters, nodes, next) = &*work;
            // Relaxed: only that no two threads have the same number matters.
            let next = || nodes.get(next.fetch_add(1, Ordering::Relaxed));
            while let Some(node) = next() {
                if sender
                    .send((node.name.clone(), figures_of(&agent, exporters, node)))
                    .is_err()
                {
                    return;
                }
            }
        });
    }
    drop(sender);
    let deadline = Instant::now() + PATIENCE;
    let mut late: BTreeSet<&str> = work.1.iter().map(|node| node.name.as_str()).collect();
    let (mut told, mut why) = (Vec::new(), BTreeMap::<String, Vec<String>>::new());
    let left = || deadline.saturating_duration_since(Instant::now());
    while let Ok((name, answer)) = answers.recv_timeout(left()) {
        late.remove(name.as_str());
        match answer {
            Ok(figures) => told.push(figures),
            Err(error) => why.entry(format!("{error:#}")).or_default().push(name),
        }
    }
    if !late.is_empty() {
        let late = late.into_iter().map(str::to_string).collect();
        why.insert("no answer in time".into(), late);
    }
    let note = |(why, nodes): (String, Vec<String>)| {
        let nodes = hostlist::compress(nodes.iter().map(String::as_str));
        format!("what jobs on {nodes} used: {why}")
    };
    Ok((told, why.into_iter().map(note).collect()))
}

/// Asks without the proxies that the environment names: nodes are near.
fn agent(exporters: &Exporters) -> anyhow::Result<Agent> {
    let mut tls = TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(default_provider()))
        .root_certs(RootCerts::Specific(Arc::default()));
    if let Some(path) = &exporters.ca {
        let read = || CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, _>>();
        let authorities = read().with_context(|| format!("exporters_ca {path}"))?;
        ensure!(
            !authorities.is_empty(),
            "exporters_ca {path} has no certificate"
        );
        let authorities = authorities
            .iter()
            .map(|one| Certificate::from_der(one).to_owned());
        tls = tls.root_certs(RootCerts::Specific(Arc::new(authorities.collect())));
    }
    let config = Agent::config_builder()
        .tls_config(tls.build())
        .timeout_global(Some(PATIENCE))
        .proxy(None)
        .max_redirects(0);
    Ok(config.build().into())
}

/// The figures that a node's exporter tells.
fn figures_of(agent: &Agent, exporters: &Exporters, node: &Node) -> anyhow::Result<usage::Node> {
    let url = exporters.url(&node.name, &node.host);
    let mut answer = agent
        .get(format!("{url}/usage"))
        .call()
        .map_err(|error| match error {
            ureq::Error::StatusCode(503) => anyhow::anyhow!("softmig-monitor does not answer"),
            error => anyhow::Error::from(error).context("asking softmig-exporter"),
        })?;
    let text = answer.body_mut().with_config().limit(LONGEST).read_to_vec();
    let text = text.context("reading softmig-exporter's answer")?;
    let figures = usage::Node::read(&text)
        .map_err(|error| anyhow::anyhow!("softmig-exporter's answer {error}"))?;
    ensure!(
        node.is_machine(&figures.node),
        "another machine answers there; see exporters in policy.toml"
    );
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ask::squeue::Job;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::{ServerConfig, ServerConnection, StreamOwned};
    use softmig_policy::NodePolicy;
    use std::fs::{self, Permissions};
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn node(name: &str) -> Node {
        Node {
            name: name.into(),
            host: name.into(),
            ..Node::default()
        }
    }

    /// Answers each connection with this, and tells what was asked.
    fn server(answer: &'static str) -> (u16, mpsc::Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, asked) = mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream: TcpStream = stream.unwrap();
                let mut head = [0; 4096];
                let count = stream.read(&mut head).unwrap();
                let _ = sender.send(String::from_utf8_lossy(&head[..count]).into_owned());
                if answer.is_empty() {
                    // It hangs.
                    std::thread::park();
                }
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        (port, asked)
    }

    fn exporters(port: u16) -> Exporters {
        // Each machine answers for all names of the loopback range here.
        let text = format!("[metrics]\nexporters = \"http://%n:{port}\"\n");
        NodePolicy::parse(&text).unwrap().metrics.exporters.unwrap()
    }

    fn asked(answer: &'static str) -> (Vec<usage::Node>, Vec<String>) {
        let (port, _asked) = server(answer);
        ask(&exporters(port), vec![node("127.0.0.1"), node("localhost")]).unwrap()
    }

    #[test]
    fn users_read_files_of_jobs_that_no_answer_has() {
        let folder = tempfile::tempdir().unwrap();
        let owner = folder.path().metadata().unwrap().uid();
        let this = ThisNode::in_folder(folder.path(), owner);
        for id in 1..=4 {
            let own = this.run.join(format!("jobs/{id}"));
            fs::create_dir_all(&own).unwrap();
            let text = format!(r#"{{"schema_version":1,"jobs":[{{"job":{id}}}]}}"#);
            fs::write(own.join("usage"), text).unwrap();
            fs::set_permissions(own.join("usage"), Permissions::from_mode(0o644)).unwrap();
        }
        let job = |id, user: &str, state: &str| Job {
            id,
            user: user.into(),
            state: state.into(),
            ..Job::default()
        };
        let jobs = vec![
            job(1, "alice", "RUNNING"),
            job(2, "bob", "RUNNING"),
            job(3, "alice", "PENDING"),
            job(4, "alice", "RUNNING"),
            job(5, "alice", "RUNNING"),
        ];
        let cluster = Cluster {
            jobs,
            ..Cluster::default()
        };
        let told = |of: Option<&str>, figures: &[usage::Node]| {
            let shown = Shown {
                own: Some("alice".into()),
                of: of.map(str::to_string),
            };
            let nodes = own_files(&this, &cluster, &shown, figures);
            let jobs = nodes.iter().flat_map(|node| &node.jobs);
            jobs.map(|job| job.job).collect::<Vec<_>>()
        };
        assert_eq!(told(None, &[]), [1, 4]);
        assert_eq!(told(Some("alice"), &[]), [1, 4]);
        assert!(told(Some("bob"), &[]).is_empty());
        let answer = r#"{"schema_version":1,"jobs":[{"job":4}]}"#;
        let answer: usage::Node = serde_json::from_str(answer).unwrap();
        assert_eq!(told(None, &[answer]), [1]);
    }

    #[test]
    fn an_exporter_is_asked_by_its_nodes_name() {
        let (port, asked) = server(
            "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"schema_version\":1,\"node\":\"127.0.0.1\",\"jobs\":[{\"job\":7}]}",
        );
        let (told, notes) = ask(&exporters(port), vec![node("127.0.0.1")]).unwrap();
        assert_eq!((told[0].jobs[0].job, notes), (7, Vec::new()));
        let head = asked.recv().unwrap();
        assert!(head.starts_with("GET /usage HTTP/1.1\r\n"), "{head}");
    }

    #[test]
    fn what_is_not_told_is_said_once_for_all_nodes() {
        for (answer, why) in [
            (
                "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"schema_version\":9}",
                "softmig-exporter's answer has form 9",
            ),
            (
                "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"schema_version\":1,\"node\":\"gpu07\"}",
                "another machine answers there",
            ),
            (
                "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n\x1b[31m",
                "softmig-exporter's answer is not what the monitor writes",
            ),
            (
                "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
                "softmig-monitor does not answer",
            ),
            (
                "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.3/\r\nContent-Length: 0\r\n\r\n",
                "softmig-exporter",
            ),
        ] {
            let (told, notes) = asked(answer);
            assert!(told.is_empty() && notes.len() == 1, "{told:?} {notes:?}");
            assert!(notes[0].contains(why), "{notes:?}");
            assert!(
                notes[0].is_ascii() && !notes[0].contains('\x1b'),
                "{notes:?}"
            );
        }
    }

    #[test]
    fn an_exporter_that_hangs_is_not_waited_for_long() {
        let begin = Instant::now();
        let (told, notes) = asked("");
        assert!(told.is_empty() && notes.len() == 1, "{told:?} {notes:?}");
        assert!(notes[0].starts_with("what jobs on "), "{notes:?}");
        // Far less than a hang, on a busy machine too.
        assert!(begin.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn nodes_that_are_not_there_are_told_together() {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let (told, notes) =
            ask(&exporters(port), vec![node("127.0.0.1"), node("localhost")]).unwrap();
        assert!(told.is_empty(), "{told:?}");
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].contains("refused"), "{notes:?}");
    }

    /// Answers one connection by TLS, with a certificate for "localhost". Returns the certificate too.
    fn tls_server(answer: &'static str) -> (u16, String) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_string()]).unwrap();
        let key = PrivateKeyDer::from_pem_slice(made.signing_key.serialize_pem().as_bytes());
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.unwrap())
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let connection = ServerConnection::new(Arc::new(config.clone())).unwrap();
                let mut stream = StreamOwned::new(connection, stream.unwrap());
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(answer.as_bytes());
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
        });
        (port, made.cert.pem())
    }

    #[test]
    fn by_tls_only_a_machine_with_the_right_certificate_is_believed() {
        let (port, certificate) = tls_server(
            "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"schema_version\":1,\"node\":\"localhost\",\"jobs\":[{\"job\":7}]}",
        );
        let (_, stranger) = tls_server("");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let text = format!(
            "[metrics]\nexporters = \"https://%n:{port}\"\nexporters_ca = \"{}\"\n",
            path.display()
        );
        let exporters = NodePolicy::parse(&text).unwrap().metrics.exporters.unwrap();
        let asked = || ask(&exporters, vec![node("localhost")]);
        assert!(asked().is_err(), "there is no such file");
        std::fs::write(&path, "").unwrap();
        assert!(
            asked()
                .unwrap_err()
                .to_string()
                .contains("has no certificate")
        );
        std::fs::write(&path, stranger).unwrap();
        let (told, notes) = asked().unwrap();
        assert!(
            told.is_empty() && notes[0].contains("certificate"),
            "{notes:?}"
        );
        std::fs::write(&path, certificate).unwrap();
        let (told, notes) = asked().unwrap();
        assert_eq!((told[0].jobs[0].job, notes), (7, Vec::new()));
    }
}
