//! The text on a terminal's screen, of which the user sees a part that they can move.

use anyhow::Context;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Widget};
use signal_hook::consts::{SIGHUP, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A signal is noticed after this time at the latest.
const SIGNALS_EVERY: Duration = Duration::from_millis(250);

/// Shows the lines, and others after each pause. A key or a signal ends it; the screen is then as it was before.
pub(super) fn run(
    pause: Duration,
    first: Vec<String>,
    look: impl Fn() -> Vec<String>,
) -> anyhow::Result<()> {
    let signal = Arc::new(AtomicUsize::new(0));
    for number in [SIGTERM, SIGHUP] {
        let value = usize::try_from(number)?;
        signal_hook::flag::register_usize(number, Arc::clone(&signal), value)?;
    }
    let mut terminal = ratatui::try_init().context("taking the terminal's screen")?;
    let mut view = View {
        lines: first,
        ..View::default()
    };
    let mut next = Instant::now() + pause;
    let outcome = loop {
        let drawn = terminal.draw(|frame| view.draw(frame.area(), frame.buffer_mut()));
        if let Err(error) = drawn {
            break Err(error);
        }
        if signal.load(Ordering::Relaxed) != 0 {
            break Ok(());
        }
        let left = next.saturating_duration_since(Instant::now());
        match pressed(left.min(SIGNALS_EVERY)) {
            Ok(Some(Key::End)) => break Ok(()),
            Ok(Some(Key::Move(to))) => view.go(to),
            Ok(None) => {}
            Err(error) => break Err(error),
        }
        if Instant::now() >= next {
            view.lines = look();
            next = Instant::now() + pause;
        }
    };
    ratatui::restore();
    if let Ok(number @ 1..) = i32::try_from(signal.load(Ordering::Relaxed)) {
        signal_hook::low_level::emulate_default_handler(number)?;
    }
    outcome.context("using the terminal")
}

/// A key with a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    End,
    Move(To),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    Lines(isize),
    Pages(isize),
    Top,
    Bottom,
}

/// The key that is pressed within a time, if it has a meaning.
fn pressed(within: Duration) -> std::io::Result<Option<Key>> {
    let answer = match event::poll(within) {
        Ok(true) => event::read(),
        Ok(false) => return Ok(None),
        Err(error) => Err(error),
    };
    match answer {
        Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => Ok(meaning(key)),
        // A signal, or another size of the screen, which the next drawing sees to.
        Ok(_) => Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(None),
        Err(error) => Err(error),
    }
}

fn meaning(key: KeyEvent) -> Option<Key> {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('c' | 'd') if is_control => Key::End,
        KeyCode::Char('q') | KeyCode::Esc => Key::End,
        KeyCode::Up | KeyCode::Char('k') => Key::Move(To::Lines(-1)),
        KeyCode::Down | KeyCode::Char('j') | KeyCode::Enter => Key::Move(To::Lines(1)),
        KeyCode::PageUp | KeyCode::Char('b') => Key::Move(To::Pages(-1)),
        KeyCode::PageDown | KeyCode::Char(' ') => Key::Move(To::Pages(1)),
        KeyCode::Home | KeyCode::Char('g') => Key::Move(To::Top),
        KeyCode::End | KeyCode::Char('G') => Key::Move(To::Bottom),
        _ => return None,
    })
}

/// The lines, and the part of them that is shown.
#[derive(Default)]
struct View {
    lines: Vec<String>,
    /// The first line that is shown.
    top: usize,
    /// How many lines were shown last.
    rows: usize,
}

impl View {
    fn go(&mut self, to: To) {
        let page = isize::try_from(self.rows).unwrap_or(isize::MAX).max(1);
        self.top = match to {
            To::Lines(count) => self.top.saturating_add_signed(count),
            To::Pages(count) => self.top.saturating_add_signed(count.saturating_mul(page)),
            To::Top => 0,
            To::Bottom => usize::MAX,
        };
    }

    /// The lines from the first one, and below them what keys do. In reverse, since some terminals have no colours.
    fn draw(&mut self, area: Rect, buffer: &mut Buffer) {
        let [above, below] =
            Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(area);
        self.rows = usize::from(above.height);
        // There may be fewer lines than before, or more room.
        self.top = self.top.min(self.lines.len().saturating_sub(self.rows));
        let shown: Vec<Line<'_>> = self
            .lines
            .iter()
            .skip(self.top)
            .take(self.rows)
            .map(|line| Line::raw(line.as_str()))
            .collect();
        let last = self.top + shown.len();
        let keys = if shown.len() == self.lines.len() {
            "q: end".to_string()
        } else {
            let all = self.lines.len();
            format!(
                "lines {}-{last} of {all}. Up, Down, PageUp, PageDown: others. q: end",
                self.top + 1
            )
        };
        Paragraph::new(shown).render(above, buffer);
        Paragraph::new(keys)
            .style(Style::new().reversed())
            .render(below, buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(view: &mut View, columns: u16, rows: u16) -> Vec<String> {
        let area = Rect::new(0, 0, columns, rows);
        let mut buffer = Buffer::empty(area);
        view.draw(area, &mut buffer);
        let row = |y| {
            (0..columns)
                .map(|x| buffer[(x, y)].symbol())
                .collect::<String>()
        };
        (0..rows).map(|y| row(y).trim_end().to_string()).collect()
    }

    fn view(count: usize) -> View {
        View {
            lines: (1..=count)
                .map(|at| format!("line {at} {}", "x".repeat(90)))
                .collect(),
            ..View::default()
        }
    }

    #[test]
    fn a_text_that_fits_is_shown_whole() {
        let mut view = view(23);
        let shown = drawn(&mut view, 80, 24);
        assert!(shown[0].starts_with("line 1 x") && shown[22].starts_with("line 23 x"));
        assert_eq!(shown[23], "q: end");
    }

    #[test]
    fn the_rest_of_a_longer_text_is_a_key_away() {
        let mut view = view(50);
        let shown = drawn(&mut view, 80, 24);
        assert!(shown[22].starts_with("line 23 x"));
        assert_eq!(
            shown[23],
            "lines 1-23 of 50. Up, Down, PageUp, PageDown: others. q: end"
        );
        for (key, first) in [
            (KeyCode::Down, "line 2 "),
            (KeyCode::PageDown, "line 25 "),
            (KeyCode::PageDown, "line 28 "),
            (KeyCode::Down, "line 28 "),
            (KeyCode::Up, "line 27 "),
            (KeyCode::PageUp, "line 4 "),
            (KeyCode::PageUp, "line 1 "),
            (KeyCode::End, "line 28 "),
            (KeyCode::Home, "line 1 "),
        ] {
            let Some(Key::Move(to)) = meaning(key.into()) else {
                panic!("{key:?}")
            };
            view.go(to);
            assert!(drawn(&mut view, 80, 24)[0].starts_with(first), "{key:?}");
        }
        // Jobs end, and the screen grows.
        view.go(To::Bottom);
        view.lines.truncate(30);
        assert!(drawn(&mut view, 80, 24)[0].starts_with("line 8 "));
        assert!(drawn(&mut view, 80, 40)[0].starts_with("line 1 "));
    }

    #[test]
    fn a_screen_of_any_size_can_be_drawn() {
        for (columns, rows) in [(1, 1), (1, 40), (200, 1), (10, 2), (0, 0)] {
            drawn(&mut view(30), columns, rows);
        }
    }

    #[test]
    fn text_that_would_steer_the_terminal_does_not_reach_it() {
        let mut view = View {
            lines: vec!["drained: \x1b[2Jfan\u{7}".into()],
            ..View::default()
        };
        let shown = drawn(&mut view, 80, 24).join("\n");
        assert!(
            shown.contains("fan") && !shown.contains(['\x1b', '\u{7}']),
            "{shown:?}"
        );
    }

    #[test]
    fn control_c_ends_it_and_c_does_not() {
        let c = KeyCode::Char('c');
        assert_eq!(
            meaning(KeyEvent::new(c, KeyModifiers::CONTROL)),
            Some(Key::End)
        );
        assert_eq!(meaning(c.into()), None);
    }
}
