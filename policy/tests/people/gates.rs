//! Requests that are allowed only inside certain reservations.

use super::*;

#[test]
fn a_gate_opens_to_a_reservation_whose_whole_name_fits() {
    let policy = policy(GATE);
    let ask = |reservation: Option<&str>| {
        let reservation = reservation.map(str::to_string);
        ask(
            &policy,
            "gres/gpu:l40s.4:1",
            Submitter {
                reservation,
                ..alice()
            },
        )
    };
    for open in [
        "jhl_homework_gpu_x",
        "course_1",
        "course_12,jhl_homework_gpu_",
    ] {
        granted(ask(Some(open)));
    }
    for closed in [
        "evil_jhl_homework_gpu_x",
        "course_1x",
        "xcourse_1",
        "Course_1",
        "course_1,evil",
        "evil,course_1",
        "course_1,",
        ",",
        "course_1\nx",
    ] {
        let refusal = refused(ask(Some(closed)));
        assert_eq!(refusal.code(), Code::GateReservation, "{closed}");
    }
    let refusal = refused(ask(None));
    insta::assert_snapshot!(refusal, @r"
    softmig: gpu:l40s.4:1: shared GPUs may only be used inside a reservation [GATE_NO_RESERVATION]
    softmig: add --reservation=NAME, where NAME matches jhl_homework_gpu_.* or course_[0-9]+; this lists reservations: scontrol show reservation
    ");
    let refusal = refused(ask(Some("evil_jhl_homework_gpu_x")));
    insta::assert_snapshot!(refusal.message(), @"gpu:l40s.4:1: shared GPUs may not be used inside reservation evil_jhl_homework_gpu_x");
}

#[test]
fn every_form_of_a_request_meets_the_same_gate() {
    let slices = policy(GATE);
    for gres in [
        "gpu:l40s.4:1",
        "gres:gpu:l40s.4",
        "shard:l40s:1",
        "gres/shard:l40s=1",
    ] {
        assert_eq!(
            refused(ask(&slices, gres, alice())).code(),
            Code::GateNoReservation,
            "{gres}"
        );
    }
    passed(ask(&slices, "gpu:l40s:1", alice()));
    passed(ask(&slices, "gpu:h100_1g.10gb:1", alice()));
    passed(ask(&slices, "license:x:1", alice()));
    for (what, gres, open) in [
        ("whole", "gpu:l40s:1", "gpu:l40s.4:1"),
        ("whole", "gres/gpu:2", "shard:l40s:1"),
        ("slice", "gpu:l40s.4:1", "gpu:l40s:1"),
        ("mig", "gpu:h100_1g.10gb:1", "gpu:l40s:1"),
        ("license", "gres:license:x:1", "gres:license2:x:1"),
        ("license", "license=1", "mylicense:1"),
        ("license", "x/gres/license:1", "License:1"),
        ("mps", "mps:80", "mpsx:80"),
    ] {
        let gate = policy(&GATE.replace("slice", what));
        let code = refused(ask(&gate, gres, alice())).code();
        assert_eq!(code, Code::GateNoReservation, "{what}: {gres}");
        passed(ask(&gate, open, alice()));
    }
    let job = Request {
        tres_per_job: Some("gpu:l40s:1".into()),
        ..Request::default()
    };
    let whole = policy(&GATE.replace("slice", "whole"));
    refused(ask_for(&whole, &job, alice()));
    let exclusive = Request {
        exclusive: true,
        ..Request::default()
    };
    assert_eq!(
        refused(ask_for(&whole, &exclusive, alice())).code(),
        Code::GateNoReservation
    );
}

#[test]
fn a_gate_stands_where_and_for_whom_it_says() {
    let text = format!(
        "{GATE}accounts = [\"Students\"]\npartitions = [\"course\", \"main\"]\nexempt_classes = [\"staff\"]\n\
         [defaults]\nshards = \"unlimited\"\nwhole_gpus = \"unlimited\"\nmig = {{}}\n[classes.staff]\nmembers = {{ users = [\"bob\"] }}\n"
    );
    let policy = policy(&text);
    let ask = |submitter| ask(&policy, "gpu:l40s.4:1", submitter);
    refused(ask(alice()));
    refused(ask(Submitter {
        partition: MaybeKnown::Is("other,course".into()),
        ..alice()
    }));
    granted(ask(Submitter {
        partition: MaybeKnown::Is("other".into()),
        ..alice()
    }));
    granted(ask(Submitter {
        account: MaybeKnown::Is("research".into()),
        ..alice()
    }));
    granted(ask(Submitter {
        account: MaybeKnown::Missing,
        ..alice()
    }));
    granted(ask(Submitter {
        user: Some("bob".into()),
        ..alice()
    }));
    // A client that does not know leaves the answer to slurmctld.
    granted(ask(Submitter {
        account: MaybeKnown::Unknown,
        ..alice()
    }));
    granted(ask(Submitter {
        partition: MaybeKnown::Unknown,
        ..alice()
    }));
}

#[test]
fn too_many_reservations_open_nothing() {
    let policy = policy(GATE);
    let list = vec!["course_1"; 65].join(",");
    let submitter = Submitter {
        reservation: Some(list),
        ..alice()
    };
    assert_eq!(
        refused(ask(&policy, "gpu:l40s.4:1", submitter)).code(),
        Code::GateReservation
    );
}

#[test]
fn a_client_meets_the_same_gates_and_large_ones_are_closed() {
    let submitter = |reservation: &str| Submitter {
        reservation: Some(reservation.into()),
        ..alice()
    };
    let text = format!("{GATE}\n{GPUS}");
    let client = Policy::parse_for_client(&text).unwrap();
    for (reservation, is_open) in [("course_1", true), ("course_1x", false)] {
        let verdict = ask(&client, "gres/gpu:l40s.4:1", submitter(reservation));
        assert_eq!(matches!(verdict, Verdict::Granted(_)), is_open);
    }
    let gate = "[[gate]]\nwhat = \"slice\"\nreservation = [\"(a{1000}){1000}\"]\n";
    let client = Policy::parse_for_client(&format!("{gate}{GPUS}")).unwrap();
    for reservation in ["a", "b"] {
        let refusal = refused(ask(&client, "gres/gpu:l40s.4:1", submitter(reservation)));
        assert_eq!(refusal.code(), Code::GateReservation);
    }
}

/// GRES that are not ours keep their names, as many as there are.
#[test]
fn a_gate_can_be_about_any_other_gres() {
    for gres in [
        "mps",
        "craynetwork",
        "fpga",
        "nic",
        "tmpfs",
        "lustre",
        "license",
    ] {
        let gate = format!("[[gate]]\nwhat = \"{gres}\"\nreservation = [\"course_.*\"]\n");
        let refusal = refused(ask(&policy(&gate), &format!("gres/{gres}:1"), alice()));
        assert_eq!(refusal.code(), Code::GateNoReservation, "{gres}");
    }
}
