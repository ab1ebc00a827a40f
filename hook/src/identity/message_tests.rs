//! All messages on one page, for people to read: `snapshots/` has it.

use super::*;
use softmig_policy::node::limits::{Mode, Share};

/// A function that returns examples. It does not compile without a line for each variant.
macro_rules! examples {
    ($name:ident: $kind:ty { $($pattern:pat => [$($example:expr),+ $(,)?],)+ }) => {
        fn $name() -> Vec<$kind> {
            let _ = |value: &$kind| match value { $($pattern => (),)+ };
            $($(assert!(matches!($example, $pattern));)+)+
            vec![$($($example),+),+]
        }
    };
}

/// A part of an L40S with 4 shards, and its next larger slice.
fn limits(shards: u32, mode: Mode) -> &'static Limits {
    let share = Share::new(shards, 4).unwrap();
    let l40s = TypeName::new("l40s").unwrap();
    let limits = Limits::new(l40s, share, share.part_of(45464), mode);
    Box::leak(Box::new(limits.unwrap()))
}

/// In the ledger's units.
const MIB: u64 = (1 << 20) / softmig_region::UNIT;

fn managed() -> &'static Request<'static> {
    let function = MANAGED;
    Box::leak(Box::new(Request {
        function,
        ..*request(true, Some("l40s.2"))
    }))
}

fn request(is_first: bool, larger: Option<&str>) -> &'static Request<'static> {
    let larger = larger.map(|name| &*Box::leak(Box::new(TypeName::new(name).unwrap())));
    Box::leak(Box::new(Request {
        function: c"cuMemAlloc",
        units: (512 * MIB) as u32,
        gpu: 0,
        held: 11000 * MIB,
        held_here: (518 * MIB) as u32,
        limit: (11366 * MIB) as u32,
        is_first,
        larger,
    }))
}

fn missing() -> Message<'static> {
    Message::Missing(Box::leak(Box::new(Missing {
        function: c"cuMemAlloc",
        units: (512 * MIB) as u32,
        gpu: 0,
        held: 3000 * MIB,
        limit: (11366 * MIB) as u32,
        free: (12 * MIB) as u32,
    })))
}

const LIBRARY: &[u8] = b"libprofiler.so.2";

examples! { reasons: Reason {
    Reason::NoConf => [Reason::NoConf],
    Reason::BadConf => [Reason::BadConf],
    Reason::Unreadable(_) => [Reason::Unreadable(OsError(libc::EMFILE))],
    Reason::BadNodeConf => [Reason::BadNodeConf],
    Reason::BadVariable => [Reason::BadVariable],
} }

examples! { causes: Why<'static> {
    // Below, for each reason.
    Why::Denied(_) => [Why::Denied(Reason::NoConf)],
    Why::NewForm => [Why::NewForm],
    Why::SecondCopy => [Why::SecondCopy],
    Why::HiddenBy(_) => [Why::HiddenBy(LIBRARY), Why::HiddenBy(b"LD_AUDIT")],
} }

examples! { messages: Message<'static> {
    Message::Limited(_) => [
        Message::Limited(limits(1, Mode::HARD)),
        Message::Limited(limits(3, Mode::SOFT)),
    ],
    Message::LimitedAsNeighbours => [Message::LimitedAsNeighbours],
    Message::LimitedByVariables => [Message::LimitedByVariables],
    Message::LimitedAs(_) => [Message::LimitedAs(12)],
    Message::NoNeighbours => [Message::NoNeighbours],
    // Below, for each cause.
    Message::Refused { .. } => [
        Message::Refused { function: c"cuInit", why: Why::Denied(Reason::NoConf), count: 10 },
    ],
    Message::NotKeptAway(_) => [Message::NotKeptAway(LIBRARY)],
    Message::NotAdmitted(_) => [Message::NotAdmitted(Error(libc::EACCES))],
    Message::NotInPack(_) => [
        Message::NotInPack(Outside::Refused(Error(libc::ECONNREFUSED))),
        Message::NotInPack(Outside::NotTaken(805)),
    ],
    Message::PackFault(_) => [Message::PackFault(700)],
    Message::NotKept(_) => [Message::NotKept(Error(libc::ECONNREFUSED))],
    Message::OutOfMemory(_) => [
        Message::OutOfMemory(request(true, Some("l40s.2"))),
        Message::OutOfMemory(request(false, None)),
        Message::OutOfMemory(managed()),
    ],
    Message::Missing(_) => [missing()],
    Message::NoAccount(_) => [
        Message::NoAccount(Error::MISSING),
        Message::NoAccount(Error(libc::EACCES)),
        Message::NoAccount(Error(libc::EUSERS)),
        Message::NoAccount(Error(libc::EOPNOTSUPP)),
        Message::NoAccount(Error(libc::EIO)),
    ],
    Message::NoArbiter => [Message::NoArbiter],
    Message::WentOn => [Message::WentOn],
} }

fn written(message: &Message<'_>, observes: bool) -> String {
    let mut line = Line::new();
    message.write(&mut line, observes);
    String::from_utf8(line.as_bytes().to_vec()).unwrap()
}

/// All of them, with each cause.
fn all() -> Vec<Message<'static>> {
    let denied = reasons().into_iter().map(Why::Denied);
    let causes = causes()
        .into_iter()
        .filter(|why| !matches!(why, Why::Denied(_)));
    let refused = denied.chain(causes).map(|why| {
        let function = c"cuLaunchKernel";
        Message::Refused {
            function,
            why,
            count: 1,
        }
    });
    messages()
        .into_iter()
        .filter(|one| !matches!(one, Message::Refused { .. }))
        .chain(refused)
        .collect()
}

#[test]
fn messages_read_like_a_colleague() {
    let mut lines = Vec::new();
    for message in all() {
        for observes in [false, true] {
            let line = format!("{:?}: {}", message.level(), written(&message, observes));
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    let page = lines.join("\n\n");
    assert!(page.is_ascii());
    insta::assert_snapshot!(page);
}

#[test]
fn a_long_name_of_a_library_leaves_room_for_the_advice() {
    let why = Why::HiddenBy(&[b'x'; 1000]);
    let message = Message::Refused {
        function: c"the GPU",
        why,
        count: u32::MAX,
    };
    let line = written(&message, true);
    assert!(
        line.ends_with("start the program without it, or in a job with a whole GPU (4294967295)"),
        "{line}"
    );
    assert!(line.len() < 250, "{line}");
}
