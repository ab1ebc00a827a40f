//! docs/steering.md says how long turns are.

use softmig_monitor::schedule::turns::Rules;

#[test]
fn the_page_of_steering_says_how_long_turns_are() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/steering.md");
    let page = std::fs::read_to_string(path).unwrap();
    let words: Vec<&str> = page.split_whitespace().collect();
    let page = words.join(" ");
    let rules = Rules::default();
    let ms = |time| time / 1_000_000;
    let text = format!(
        "A turn is the job's share of {} ms. If more than {} jobs want turns, it is the job's share of up to {} ms. It is never shorter than {} ms.",
        ms(rules.epoch),
        rules.epoch / rules.mean_turn,
        ms(rules.longest_epoch),
        ms(rules.shortest_turn),
    );
    assert!(page.contains(&text), "{text}");
    assert_eq!(ms(rules.patience), 1000, "\"a second at most\"");
}
