//! Slurm's REST API, as a user's own slurmrestd answers it.
//!
//! slurmrestd listens on a unix socket in the user's home for one request. `rest_auth/local` asks the kernel who is at
//! the other end, so the client runs inside too, as the user; Perl is in every Debian root.

use std::fmt;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::slurm::Slurm;
use crate::user::User;

/// An answer of slurmrestd.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The HTTP status, 200 when all went well.
    pub status: u16,
    /// The JSON that came with it, or its text if that is not JSON.
    pub body: Value,
}

impl Reply {
    /// The texts of its errors, as a user would read them.
    pub fn errors(&self) -> Vec<String> {
        let errors = self.body["errors"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let texts = errors.iter().map(|error| {
            let parts = ["description", "error"].map(|key| error[key].as_str().unwrap_or_default());
            parts
                .iter()
                .filter(|part| !part.is_empty())
                .copied()
                .collect::<Vec<_>>()
                .join(": ")
        });
        texts.collect()
    }

    /// The job that a submission made.
    pub fn job(&self) -> Result<u32> {
        let id = self.body["job_id"].as_u64().filter(|&id| id != 0);
        u32::try_from(id.with_context(|| format!("no job was made: {self}"))?).context("a job id")
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HTTP {}: {:#}", self.status, self.body)
    }
}

/// Starts slurmrestd, hands it the request on standard input and prints its answer; the plugins are its arguments.
const ON_A_SOCKET: &str = r#"
socket=$(mktemp -u "$HOME/rest.XXXXXX")
slurmrestd -a rest_auth/local "$@" "unix:$socket" &
until [ -S "$socket" ] || ! kill -0 $! 2>/dev/null; do sleep 0.02; done
perl -MIO::Socket::UNIX -e '
    my $slurmrestd = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die "no slurmrestd: $!";
    local $/;
    $slurmrestd->print(<STDIN>);
    $slurmrestd->flush;
    print <$slurmrestd>' "$socket"
kill $! && wait $!
rm -f "$socket"
"#;

impl User<'_> {
    /// One request, such as `POST` to `job/submit`: the API's own prefix is put before the resource.
    pub fn rest(&self, method: &str, resource: &str, body: Option<&Value>) -> Result<Reply> {
        let slurm = self.cluster().slurm();
        // Without slurmdbd its plugins end the program, so only the others are loaded, by name.
        let plugins = match slurm {
            Slurm::V22_05 => &["-s", "openapi/v0.0.38"][..],
            Slurm::V24_11 => &["-s", "slurmctld", "-d", "v0.0.41"],
            Slurm::V26_05 => &["-s", "slurmctld", "-d", "v0.0.43"],
        };
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = format!(
            "{method} /slurm/{api}/{resource} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}",
            api = slurm.rest_api(),
            length = body.len(),
        );
        let said = self
            .command(&[&["bash", "-c", ON_A_SOCKET, "rest"], plugins].concat())
            .stdin(request)
            .output()?;
        parse(&said.stdout).with_context(|| format!("{method} {resource}: {said}"))
    }

    /// Submits a batch script over REST with these fields of a job, named as this version names them.
    pub fn rest_submit(&self, fields: &Value, script: &str) -> Result<Reply> {
        let script = format!("#!/bin/bash\n{script}\n");
        let mut job = json!({
            "name": "rest",
            "current_working_directory": format!("/home/{}", self.name()),
        });
        let path = crate::command::PATH;
        let mut request = json!({});
        match self.cluster().slurm() {
            Slurm::V22_05 => {
                job["environment"] = json!({ "PATH": path });
                request["script"] = script.into();
            }
            Slurm::V24_11 | Slurm::V26_05 => {
                job["environment"] = json!([format!("PATH={path}")]);
                job["script"] = script.into();
            }
        }
        for (name, value) in fields
            .as_object()
            .context("the fields of a job are a JSON object")?
        {
            job[name] = value.clone();
        }
        request["job"] = job;
        self.rest("POST", "job/submit", Some(&request))
    }
}

/// Takes an HTTP response apart. The length counts: slurmrestd may write headers after the body.
fn parse(response: &str) -> Result<Reply> {
    let Some((head, rest)) = response.split_once("\r\n\r\n") else {
        bail!("not an HTTP response");
    };
    let mut lines = head.lines();
    let first = lines.next().unwrap_or_default();
    let status = first
        .split(' ')
        .nth(1)
        .unwrap_or_default()
        .parse()
        .context("an HTTP status")?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("Content-Length")
            .then(|| value.trim().parse().ok())?
    });
    let body = rest.get(..length.unwrap_or(rest.len())).unwrap_or(rest);
    let body = serde_json::from_str(body).unwrap_or_else(|_| body.into());
    Ok(Reply { status, body })
}
