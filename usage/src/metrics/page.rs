//! A page of metrics, written by the `prometheus` crate.

use prometheus::TextEncoder;
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

/// Metrics, in the order in which they were added.
#[derive(Debug, Default)]
pub struct Page(Vec<Family>);

/// A metric with all its samples.
#[derive(Debug)]
pub struct Family {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    samples: Vec<Metric>,
}

impl Page {
    /// A value that goes up and down.
    pub fn gauge(&mut self, name: &'static str, help: &'static str) -> &mut Family {
        self.family(name, help, MetricType::GAUGE)
    }

    /// A value that only grows; its name ends in `_total`.
    pub fn counter(&mut self, name: &'static str, help: &'static str) -> &mut Family {
        self.family(name, help, MetricType::COUNTER)
    }

    /// A metric of this kind.
    pub(super) fn family(
        &mut self,
        name: &'static str,
        help: &'static str,
        kind: MetricType,
    ) -> &mut Family {
        let at = self.0.len();
        let samples = Vec::new();
        self.0.push(Family {
            name,
            help,
            kind,
            samples,
        });
        &mut self.0[at]
    }

    /// The text. A metric without samples is not in it.
    pub fn text(self) -> String {
        let families: Vec<MetricFamily> = self.0.into_iter().filter_map(Family::told).collect();
        // It fails only for a family without a name or samples.
        TextEncoder::new()
            .encode_to_string(&families)
            .unwrap_or_default()
    }
}

impl Family {
    /// Adds a sample.
    pub fn add(&mut self, labels: &[(&str, &str)], value: f64) {
        let pair = |&(name, value): &(&str, &str)| {
            let mut pair = LabelPair::default();
            pair.set_name(name.into());
            pair.set_value(value.into());
            pair
        };
        let mut sample = Metric::default();
        sample.set_label(labels.iter().map(pair).collect());
        if self.kind == MetricType::COUNTER {
            let mut counter = Counter::default();
            counter.set_value(value);
            sample.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            sample.set_gauge(gauge);
        }
        self.samples.push(sample);
    }

    fn told(self) -> Option<MetricFamily> {
        let mut family = MetricFamily::default();
        family.set_name(self.name.into());
        family.set_help(self.help.into());
        family.set_field_type(self.kind);
        family.set_metric(self.samples);
        (!family.get_metric().is_empty()).then_some(family)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_user_may_have_named_cannot_end_a_label() {
        let mut page = Page::default();
        let odd = "a\"} 1\nfake{b=\"\\";
        page.gauge("softmig_test", "Help")
            .add(&[("user", odd)], 0.25);
        let text = "# HELP softmig_test Help\n# TYPE softmig_test gauge\n\
                    softmig_test{user=\"a\\\"} 1\\nfake{b=\\\"\\\\\"} 0.25\n";
        assert_eq!(page.text(), text);
    }

    #[test]
    fn large_values_are_exact_and_empty_metrics_are_left_out() {
        let mut page = Page::default();
        page.gauge("softmig_none", "Help");
        page.counter("softmig_bytes_total", "Help")
            .add(&[], 150_751_682_560.0);
        assert!(
            page.text()
                .ends_with("counter\nsoftmig_bytes_total 150751682560\n")
        );
        assert_eq!(Page::default().text(), "");
    }
}
