//! The tables, one per load.

use super::{OPEN_GAP, OpenRun, Options, RequestsRun, Results, Scenario, StreamsRun};
use crate::{
    load::relay::Requests,
    machine::memory::Memory,
    report::{Table, median, number},
    suite::target::Target,
};

impl Results {
    /// The tables, one per load.
    pub fn tables(&self, options: &Options) -> Vec<Table> {
        let targets = &options.targets;
        let mut tables: Vec<Table> = options
            .scenarios
            .iter()
            .map(|scenario| self.streams_table(targets, *scenario))
            .collect();
        tables.extend(options.answers.iter().map(|events| self.requests_table(targets, *events)));
        tables.push(self.memory_table(targets));
        if options.open > 0 {
            tables.push(self.open_table(options));
        }
        tables
    }

    fn streams_table(&self, targets: &[Target], scenario: Scenario) -> Table {
        let rate = if scenario.is_flood() { "writes/s" } else { "chunks/s" };
        let machine = if scenario.is_flood() { "CPU/write" } else { "CPU/chunk" };
        let mut head = vec![""];
        if scenario.is_flood() {
            head.push(rate);
        } else {
            head.extend(["p50", "p99", "p99.9", "first byte p50", rate]);
        }
        head.extend([
            machine,
            "of client, gateway, backend",
            "gateway alone",
            "in the kernel",
            "failures",
        ]);
        let title = format!("{} (times in us)", scenario.title());
        let mut table = Table::new(title, head);
        for &target in targets {
            let figure = |figure: &dyn Fn(&StreamsRun) -> f64| {
                self.streams_median(target, scenario, figure).map_or("–".into(), number)
            };
            let mut row = vec![target.name().to_owned()];
            if !scenario.is_flood() {
                row.extend([
                    figure(&|run| run.client.transit_us.p50),
                    figure(&|run| run.client.transit_us.p99),
                    figure(&|run| run.client.transit_us.p999),
                    figure(&|run| run.client.open_us.p50),
                ]);
            }
            row.extend([
                figure(&|run| run.client.events as f64 / run.client.seconds),
                figure(&|run| run.cost.machine_us),
                figure(&|run| run.cost.parties_us),
                figure(&|run| run.cost.gateway_us),
            ]);
            let runs: Vec<_> = self
                .streams
                .iter()
                .filter(|run| run.target == target && run.scenario == scenario)
                .collect();
            let shares: Vec<f64> =
                runs.iter().filter_map(|run| Some(run.carried?.kernel_share())).collect();
            row.push(match shares.is_empty() {
                true => String::new(),
                false => format!("{:.0}%", median(shares) * 100.0),
            });
            row.push(runs.iter().map(|run| run.client.failures).sum::<u64>().to_string());
            table.row(row);
        }
        table
    }

    fn requests_table(&self, targets: &[Target], events: u32) -> Table {
        let head = [
            "",
            "first byte p50",
            "p90",
            "p99",
            "requests/s",
            "CPU/request",
            "of client, gateway, backend",
            "gateway alone",
            "failures",
        ];
        let title = match events {
            0 => "Requests of 2 KiB on 16 connections that stay open, every 10 ms (times in us)"
                .into(),
            1 => "The same back to back, answered with one chunk (times in us)".into(),
            _ => format!(
                "The same back to back, answered with {events} chunks, one every {} ms (times in us)",
                Requests::EVENT_GAP_US / 1_000
            ),
        };
        let mut table = Table::new(title, head);
        for &target in targets {
            let runs: Vec<_> = self
                .requests
                .iter()
                .filter(|run| run.target == target && run.events == events)
                .collect();
            let figure = |figure: &dyn Fn(&RequestsRun) -> f64| {
                number(median(runs.iter().map(|run| figure(run))))
            };
            table.row([
                target.name().to_owned(),
                figure(&|run| run.client.first_byte_us.p50),
                figure(&|run| run.client.first_byte_us.p90),
                figure(&|run| run.client.first_byte_us.p99),
                figure(&|run| run.client.answers as f64 / run.client.seconds),
                figure(&|run| run.cost.machine_us),
                figure(&|run| run.cost.parties_us),
                figure(&|run| run.cost.gateway_us),
                runs.iter().map(|run| run.client.failures).sum::<u64>().to_string(),
            ]);
        }
        table
    }

    fn memory_table(&self, targets: &[Target]) -> Table {
        let head =
            ["", "open", "RSS", "PSS", "socket buffers", "kernel slab", "slab without direct's"];
        let title = "Memory per open stream (KiB)";
        let mut table = Table::new(title, head);
        let direct = self.memory_median(Target::Direct, |memory| memory.slab);
        for &target in targets {
            let kib = |figure: &dyn Fn(&Memory) -> f64| {
                self.memory_median(target, |memory| figure(memory) / 1024.0)
            };
            let show = |value: Option<f64>| value.map_or("–".into(), number);
            let slab = kib(&|memory| memory.slab);
            let open =
                self.memory.iter().filter(|run| run.target == target).map(|run| run.open).min();
            table.row([
                target.name().to_owned(),
                open.map_or("–".into(), |open| number(open as f64)),
                show(kib(&|memory| memory.rss)),
                show(kib(&|memory| memory.pss)),
                show(kib(&|memory| memory.tcp)),
                show(slab),
                show(slab.zip(direct).map(|(slab, direct)| slab - direct / 1024.0)),
            ]);
        }
        table
    }

    fn open_table(&self, options: &Options) -> Table {
        let head = [
            "",
            "chunks/s",
            "p50",
            "p99",
            "gateway user ms/s",
            "gateway kernel ms/s",
            "waits/s",
            "CPU/chunk of all",
            "in the kernel",
            "failures",
        ];
        let title = format!(
            "{} streams, a chunk of 200 bytes every {} s (times in us if nothing else is said)",
            options.open,
            OPEN_GAP.as_secs()
        );
        let mut table = Table::new(title, head);
        for &target in &options.targets {
            let runs: Vec<_> = self.open.iter().filter(|run| run.target == target).collect();
            let figure = |figure: &dyn Fn(&OpenRun) -> f64| match runs.is_empty() {
                true => "–".into(),
                false => number(median(runs.iter().map(|run| figure(run)))),
            };
            let share = |run: &OpenRun| run.carried.map_or(0.0, |it| it.kernel_share() * 100.0);
            table.row([
                target.name().to_owned(),
                figure(&|run| run.client.events as f64 / run.client.seconds),
                figure(&|run| run.client.transit_us.p50),
                figure(&|run| run.client.transit_us.p99),
                figure(&|run| run.user_ms),
                figure(&|run| run.system_ms),
                figure(&|run| run.waits),
                figure(&|run| run.cost.machine_us),
                figure(&share) + "%",
                runs.iter().map(|run| run.client.failures).sum::<u64>().to_string(),
            ]);
        }
        table
    }
}
