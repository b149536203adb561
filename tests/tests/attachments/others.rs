//! Somebody else's programs.

use aya::{
    Ebpf,
    maps::Array,
    programs::{
        SchedClassifier, TcAttachType,
        tc::{NlOptions, TcAttachOptions},
    },
};
use tests::{netns::Namespace, process};

use crate::hosts::Row;

/// Somebody else's programs on an interface.
pub(crate) struct Others(Ebpf);

impl Others {
    pub(crate) fn attach(row: &Row, programs: &[(&str, TcAttachType)], filters: bool) -> Self {
        Self::attach_to(&row.gateway, &row.links[1], programs, filters)
    }

    pub(crate) fn attach_to(
        host: &Namespace,
        link: &str,
        programs: &[(&str, TcAttachType)],
        filters: bool,
    ) -> Self {
        let path = process::build_dir().join("../bpf-tests/atalho-wire");
        let mut ebpf = Ebpf::load_file(&path).expect("`cargo xtask build-ebpf` builds it");
        host.run(|| {
            for (name, way) in programs {
                let program: &mut SchedClassifier =
                    ebpf.program_mut(name).unwrap().try_into().unwrap();
                program.load().unwrap();
                if filters {
                    let _ = aya::programs::tc::qdisc_add_clsact(link);
                    let options = TcAttachOptions::Netlink(NlOptions::default());
                    program.attach_with_options(link, *way, options).unwrap();
                } else {
                    program.attach(link, *way).unwrap();
                }
            }
        });
        Self(ebpf)
    }

    /// What arrived, and what left.
    pub(crate) fn seen(&self) -> [u64; 2] {
        let seen: Array<_, u64> = self.0.map("SEEN").unwrap().try_into().unwrap();
        [0, 1].map(|way| seen.get(&way, 0).unwrap())
    }
}

/// The filters of ours on an interface.
pub(crate) fn filters(namespace: &Namespace, link: &str) -> usize {
    ["ingress", "egress"]
        .map(|way| {
            let output = std::process::Command::new("tc")
                .args(["-n", namespace.name(), "filter", "show", "dev", link, way])
                .output()
                .expect("the `tc` command");
            String::from_utf8_lossy(&output.stdout).matches("_hook ").count()
        })
        .iter()
        .sum()
}
