//! Text in Slurm's accounting that other programs write.

use softmig_fuzz::text;
use softmig_usage::js1::Js1;

const JSON: &str = r#"{"nodes":{"n1":{"total_memory":1,"used_memory":2,"total_time":3.5,"cpus":4,
    "gpu_total_memory":{"0":5},"gpu_used_memory":{"0":6.5},"gpu_utilization":{"0":7.1},
    "softmig":{"type":"l40s","shards":1,"shards_per_gpu":4,"known_seconds":1.5,"refused":3}}},
    "total_time":-1,"gpus":1,"later":{"x":null}}"#;

/// `{}` as gzip in base64.
const COMMENT: &str = "JS1:H4sIAAAAAAACA6uuBQBDv6ajAgAAAA==";

#[test]
fn summaries() {
    text(3000, &[COMMENT], |comment| {
        let _ = Js1::decode(comment);
    });
    text(3000, &[JSON], |json| {
        let Ok(summary) = serde_json::from_str::<Js1>(json) else {
            return;
        };
        let comment = summary.encode().unwrap_or_default();
        let again = Js1::decode(&comment).map(|again| again.nodes.len());
        assert_eq!(again.ok(), Some(summary.nodes.len()));
        // A merged summary says it all, so it is not written again.
        let merged = summary.beside(&comment).ok().flatten().unwrap_or(comment);
        assert!(matches!(summary.beside(&merged), Ok(None)));
    });
}
