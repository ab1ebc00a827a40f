//! Tests of [`super`].

use super::*;

fn conf() -> JobConf {
    let mut gpus = Gpus::default();
    gpus.push(Uuid::parse("GPU-00000000-1111-2222-3333-444444444444").unwrap())
        .unwrap();
    JobConf {
        job: NonZeroU32::new(7),
        uid: 2001,
        run: 3,
        start: Some(1_795_239_133),
        limits: Some(
            Limits::new(
                TypeName::new("l40s").unwrap(),
                Share::new(1, 8).unwrap(),
                5683,
                Mode::HARD,
            )
            .unwrap(),
        ),
        gpus,
        gate: false,
        larger: None,
        pack: None,
    }
}

#[test]
fn a_slices_conf_reads_as_documented() {
    assert_eq!(
        conf().to_string(),
        "CUDA_DEVICE_MEMORY_LIMIT=5683M\n\
         CUDA_DEVICE_SM_LIMIT=12.5\n\
         CUDA_DEVICE_MEMORY_LIMIT_0=5683M\n\
         CUDA_DEVICE_SM_LIMIT_0=12.5\n\
         SOFTMIG_JOB=7\n\
         SOFTMIG_UID=2001\n\
         SOFTMIG_TYPE=l40s\n\
         SOFTMIG_SHARDS=1/8\n\
         SOFTMIG_MODE=hard\n\
         SOFTMIG_GPUS=GPU-00000000-1111-2222-3333-444444444444\n\
         SOFTMIG_RUN=3\n\
         SOFTMIG_START=1795239133\n"
    );
}

#[test]
fn what_is_written_is_read_back() {
    let mut conf = conf();
    assert_eq!(JobConf::parse(conf.to_string().as_bytes()), Ok(conf));
    conf.gate = true;
    assert!(conf.to_string().ends_with("\nSOFTMIG_DEVICE_GATE=1\n"));
    assert_eq!(JobConf::parse(conf.to_string().as_bytes()), Ok(conf));
    conf.larger = Some(TypeName::new("l40s.4").unwrap());
    assert!(conf.to_string().ends_with("\nSOFTMIG_LARGER=l40s.4\n"));
    assert_eq!(JobConf::parse(conf.to_string().as_bytes()), Ok(conf));
    conf.limits = None;
    assert_eq!(JobConf::parse(conf.to_string().as_bytes()), Ok(conf));
    conf.gpus = Gpus::default();
    assert_eq!(JobConf::parse(conf.to_string().as_bytes()), Ok(conf));
}

#[test]
fn older_readers_find_a_mode_that_they_know() {
    for (mode, lines) in [
        ("soft", "SOFTMIG_MODE=soft\n"),
        ("60%", "SOFTMIG_MODE=hard\nSOFTMIG_CEILING=60%\n"),
        ("hard/20", "SOFTMIG_MODE=hard\nSOFTMIG_CEILING=hard/20\n"),
        ("soft/0", "SOFTMIG_MODE=soft\nSOFTMIG_CEILING=soft/0\n"),
    ] {
        let mut conf = conf();
        let limits = conf.limits.unwrap();
        let mode = Mode::parse(mode).unwrap();
        let (share, memory) = (limits.share(), limits.memory_mib().into());
        conf.limits = Limits::new(*limits.gpu_type(), share, memory, mode).ok();
        let text = conf.to_string();
        assert!(text.contains(&format!("\n{lines}SOFTMIG_GPUS=")), "{text}");
        assert_eq!(JobConf::parse(text.as_bytes()), Ok(conf));
    }
}

#[test]
fn a_conf_cut_off_anywhere_is_no_conf() {
    let text = conf().to_string();
    // The last two lines need not be there.
    let may_end = ["SOFTMIG_RUN", "SOFTMIG_START"].map(|key| text.find(key).unwrap());
    for end in 0..text.len() {
        let parsed = JobConf::parse(&text.as_bytes()[..end]);
        assert_eq!(parsed.is_ok(), may_end.contains(&end), "cut at {end}");
    }
}

#[test]
fn contradictions_and_garbage_are_refused() {
    let text = conf().to_string();
    for (from, to, error) in [
        ("LIMIT=12.5", "LIMIT=100", ConfError::Contradiction(DEVICE)),
        (
            "LIMIT_0=12.5",
            "LIMIT_0=100",
            ConfError::Contradiction(DEVICE),
        ),
        (
            "LIMIT_0=5683M",
            "LIMIT_0=90G",
            ConfError::Contradiction(DEVICE),
        ),
        ("LIMIT=5683M", "LIMIT=-1", ConfError::Contradiction(DEVICE)),
        ("MODE=hard", "MODE=whole", ConfError::Contradiction(MODE)),
        (
            "MODE=hard",
            "MODE=none",
            ConfError::Limits(LimitsError::Mode),
        ),
        (
            "SHARDS=1/8",
            "SHARDS=9/8",
            ConfError::Limits(LimitsError::Shards),
        ),
        ("SOFTMIG_UID=2001", "SOFTMIG_UID=-1", ConfError::Value(UID)),
        ("SOFTMIG_JOB=7", "SOFTMIG_JOB=0", ConfError::Value(JOB)),
        ("SOFTMIG_JOB=7", "SOFTMIG_JOB=07", ConfError::Value(JOB)),
        ("SOFTMIG_UID=2001\n", "", ConfError::Missing(UID)),
        (
            "SOFTMIG_UID=",
            "SOFTMIG_UID=2001\nSOFTMIG_UID=",
            ConfError::Twice(UID),
        ),
        ("GPUS=GPU-", "GPUS=gpu-", ConfError::Value(GPUS)),
        ("SOFTMIG_RUN=3", "garbage", ConfError::Line),
        ("SOFTMIG_RUN=3", "", ConfError::Line),
        (
            "SOFTMIG_RUN=3",
            "SOFTMIG_DEVICE_GATE=yes",
            ConfError::Value(GATE),
        ),
    ] {
        let text = text.replacen(from, to, 1);
        assert_eq!(JobConf::parse(text.as_bytes()), Err(error), "{text}");
    }
    let whole = "SOFTMIG_UID=1\nSOFTMIG_MODE=whole\nSOFTMIG_GPUS=\n";
    assert!(JobConf::parse(whole.as_bytes()).is_ok());
    for line in [
        "CUDA_DEVICE_MEMORY_LIMIT_0=1M\n",
        "SOFTMIG_SHARDS=1/4\n",
        "SOFTMIG_TYPE=l40s\n",
        "SOFTMIG_CEILING=60%\n",
    ] {
        let text = format!("{whole}{line}");
        assert_eq!(
            JobConf::parse(text.as_bytes()),
            Err(ConfError::Contradiction(MODE))
        );
    }
    assert_eq!(JobConf::parse(b"\xff\n"), Err(ConfError::Encoding));
}

#[test]
fn the_conf_of_an_older_prolog_names_no_job() {
    let text = conf().to_string().replace("SOFTMIG_JOB=7\n", "");
    let older = JobConf {
        job: None,
        ..conf()
    };
    assert_eq!(older.to_string(), text);
    assert_eq!(JobConf::parse(text.as_bytes()), Ok(older));
}

#[test]
fn keys_of_a_newer_version_are_passed_over() {
    let text = conf().to_string() + "SOFTMIG_FUTURE=anything\n";
    assert_eq!(JobConf::parse(text.as_bytes()), Ok(conf()));
}
