//! The state of each GPU before a benchmark: whether other programs use it, and what slows it.

use std::collections::BTreeMap;

use weftrun_core::Finding;
use weftrun_core::text::listed;

/// Memory, MiB, and percent of the last second from which on a GPU is in use: drivers count what they reserve themselves, and a
/// program that has just ended leaves a rest.
const USED_MEMORY: u64 = 2048;
const USED_TIME: u64 = 5;
/// Memory, MiB, without which no program computes on a GPU: that of its context. Two H200 had 0 MiB before, and 1141 MiB with a
/// program that multiplied matrices of 256 MiB.
const CONTEXT: u64 = 256;
/// Reasons for lower clocks that slow a GPU under load, by their bits (`nvmlClocksEventReasons`, nvml.h of CUDA 12.8).
/// The power cap is none of them: under load it is how a GPU keeps its limit.
const SLOWER: [(u64, &str); 4] = [
    (0x8, "hardware slowdown"),
    (0x20, "software thermal slowdown"),
    (0x40, "hardware thermal slowdown"),
    (0x80, "hardware power brake"),
];

/// One GPU of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GpuState {
    index: String,
    memory_mib: Option<u64>,
    busy_percent: Option<u64>,
    power_limit: Option<u64>,
    default_power_limit: Option<u64>,
    mig: bool,
    persistence_off: bool,
    width: Option<u64>,
    most_width: Option<u64>,
    reasons: u64,
}

impl GpuState {
    /// Reads the fields that the probe asks `nvidia-smi --query-gpu` for, in their order. A field that the driver does not
    /// support has a word in place of a number.
    pub fn read(line: &str) -> Option<Self> {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let [index, memory, busy, limit, default, mig, persistence, width, most_width, reasons] =
            cells.as_slice()
        else {
            return None;
        };
        let number = |cell: &&str| cell.split('.').next().and_then(|whole| whole.parse().ok());
        let bits = reasons.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        Some(Self {
            index: (*index).to_owned(),
            memory_mib: number(memory),
            busy_percent: number(busy),
            power_limit: number(limit),
            default_power_limit: number(default),
            mig: *mig == "Enabled",
            persistence_off: *persistence == "Disabled",
            width: number(width),
            most_width: number(most_width),
            reasons: bits.unwrap_or_default(),
        })
    }

    fn is_in_use(&self) -> bool {
        let memory = self.memory_mib.unwrap_or_default();
        let busy = self.busy_percent.is_some_and(|busy| busy >= USED_TIME) && memory >= CONTEXT;
        // Without persistence the driver starts with the question, and is busy itself.
        memory >= USED_MEMORY || (busy && !self.persistence_off)
    }
}

/// Returns what programs had of the GPUs of a node before the benchmark, as a sentence; none where no program used one.
pub(crate) fn in_use(host: &str, gpus: &[GpuState], processes: &str) -> Option<String> {
    let used: Vec<&GpuState> = gpus.iter().filter(|gpu| gpu.is_in_use()).collect();
    let most = |of: fn(&GpuState) -> Option<u64>| used.iter().filter_map(|gpu| of(gpu)).max();
    let names = names(used.iter().copied())?;
    let busy = most(|gpu| gpu.busy_percent).filter(|busy| *busy > 0);
    let had = [
        busy.map(|busy| format!("busy for up to {busy} % of the time")),
        most(|gpu| gpu.memory_mib).map(|mib| format!("up to {mib} MiB of memory")),
    ];
    let had: Vec<String> = had.into_iter().flatten().collect();
    // The list does not say which GPU a program uses.
    let by = match programs(processes) {
        all if all.is_empty() => String::new(),
        all => format!("; programs on the GPUs of the node: {all}"),
    };
    Some(format!("{names} of {host} in use before the benchmark: {}{by}", had.join(", ")))
}

/// Returns the programs that hold a GPU of a node and used next to nothing of it, as a sentence; none where one is in use.
pub(crate) fn idle_programs(host: &str, gpus: &[GpuState], processes: &str) -> Option<String> {
    let all = programs(processes);
    let is_idle = !all.is_empty() && !gpus.iter().any(GpuState::is_in_use);
    is_idle.then(|| format!("programs on the GPUs of {host} were idle before the benchmark: {all}"))
}

fn programs(processes: &str) -> String {
    let all: Vec<String> = processes.split(';').filter(|one| !one.is_empty()).map(program).collect();
    all.join("; ")
}

/// Describes a program: `813 python3 @job_4711` is of a job of Slurm, `@pod1b…` of a pod, any other word of a user.
fn program(listed: &str) -> String {
    let Some((name, of)) = listed.rsplit_once(" @") else { return listed.to_owned() };
    let of = match (of.strip_prefix("job_"), of.strip_prefix("pod")) {
        (Some(job), _) if job.bytes().all(|byte| byte.is_ascii_digit()) => format!("Slurm job {job}"),
        (_, Some(uid)) if uid.len() == 36 => format!("the pod with UID {}", uid.replace('_', "-")),
        _ => format!("user {of}"),
    };
    format!("{name} of {of}")
}

/// Returns what slows the GPUs of a node.
pub(crate) fn findings(host: &str, gpus: &[GpuState]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |code: &str, those: Vec<&GpuState>, what: &str, fix: &str| {
        if let Some(names) = names(those.iter().copied()) {
            findings.push(Finding::warning(code, format!("{names} of {host}: {what}")).fix(fix.to_owned()));
        }
    };
    let of = |is: fn(&GpuState) -> bool| gpus.iter().filter(|gpu| is(gpu)).collect::<Vec<_>>();
    for ((now, usual), capped) in below(gpus, |gpu| gpu.power_limit.zip(gpu.default_power_limit)) {
        let what = format!("the power limit is {now} W, and {usual} W by default");
        let fix = "`nvidia-smi -pl` with the default restores it; ask the administrators why it is lower";
        add("VERIFY-GPU-POWER", capped, &what, fix);
    }
    for ((now, most), narrow) in below(gpus, |gpu| gpu.width.zip(gpu.most_width)) {
        let what = format!("the PCIe link had {now} of {most} lanes before the benchmark");
        let fix = "look again while the GPU works: if it is so then, seat the GPU again, or have its slot and riser checked";
        add("VERIFY-GPU-PCIE", narrow, &what, fix);
    }
    for (bit, reason) in SLOWER {
        let slowed = gpus.iter().filter(|gpu| gpu.reasons & bit != 0).collect();
        let what = format!("the clocks are lowered: {reason}");
        add(
            "VERIFY-GPU-CLOCKS",
            slowed,
            &what,
            "look at power and cooling: `nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER`",
        );
    }
    let what = "MIG is on: a part of a GPU has no NVLink and no peer access";
    add("VERIFY-GPU-MIG", of(|gpu| gpu.mig), what, "give the job whole GPUs");
    let what = "persistence mode is off: the driver is loaded again for each program";
    add("VERIFY-GPU-PERSISTENCE", of(|gpu| gpu.persistence_off), what, "run nvidia-persistenced on the node");
    findings
}

/// Returns the GPUs that have less of something than they could have, by what they have and could have.
fn below(gpus: &[GpuState], of: fn(&GpuState) -> Option<(u64, u64)>) -> BTreeMap<(u64, u64), Vec<&GpuState>> {
    let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for gpu in gpus {
        if let Some((now, most)) = of(gpu).filter(|(now, most)| now < most) {
            all.entry((now, most)).or_default().push(gpu);
        }
    }
    all
}

fn names<'a>(gpus: impl Iterator<Item = &'a GpuState>) -> Option<String> {
    let names: Vec<&str> = gpus.map(|gpu| gpu.index.as_str()).collect();
    let word = if names.len() == 1 { "GPU" } else { "GPUs" };
    (!names.is_empty()).then(|| format!("{word} {}", listed(&names, 8)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpus(lines: &[&str]) -> Vec<GpuState> {
        lines.iter().filter_map(|line| GpuState::read(line)).collect()
    }

    const IDLE: &str = "0, 622, 0, 700.00, 700.00, Disabled, Enabled, 16, 16, 0x0000000000000001";

    #[test]
    fn an_idle_gpu_has_nothing_to_say() {
        let idle = gpus(&[IDLE]);
        assert_eq!((in_use("a", &idle, ""), findings("a", &idle).len()), (None, 0));
        // A virtual machine does not show all of it.
        let hidden = gpus(&["0, 0, 0, [N/A], [N/A], [N/A], Enabled, [N/A], [N/A], Not Supported"]);
        assert_eq!((in_use("a", &hidden, ""), findings("a", &hidden).len()), (None, 0));
    }

    #[test]
    fn other_work_is_named_with_what_it_has() {
        let used = gpus(&[IDLE, "1, 40000, 100, 700.00, 700.00, Disabled, Enabled, 16, 16, 0x0"]);
        assert_eq!(
            in_use("a", &used, "775 python3;").unwrap(),
            "GPU 1 of a in use before the benchmark: busy for up to 100 % of the time, up to 40000 MiB of memory; programs on the GPUs of the node: 775 python3"
        );
    }

    #[test]
    fn programs_that_do_nothing_are_named_too() {
        let small = gpus(&["0, 1731, 1, 700.00, 700.00, Disabled, Enabled, 16, 16, 0x0"]);
        assert_eq!(in_use("vm", &small, "733 python @root;"), None);
        let said = idle_programs("vm", &small, "733 python @root;").unwrap();
        assert_eq!(
            said,
            "programs on the GPUs of vm were idle before the benchmark: 733 python of user root"
        );
        assert_eq!(idle_programs("vm", &small, ""), None);
    }

    #[test]
    fn a_program_is_of_a_job_a_pod_or_a_user() {
        for (listed, told) in [
            ("813 python3 @job_4711", "813 python3 of Slurm job 4711"),
            (
                "9 my prog @pod1b4e28ba_2fa1_11d2_883f_0016d3cca427",
                "9 my prog of the pod with UID 1b4e28ba-2fa1-11d2-883f-0016d3cca427",
            ),
            ("813 python3 @root", "813 python3 of user root"),
            ("813 python3 @job_x", "813 python3 of user job_x"),
            ("813 python3", "813 python3"),
        ] {
            assert_eq!(program(listed), told);
        }
    }

    /// The driver that starts for the question is busy itself, and leaves no memory in use.
    #[test]
    fn a_driver_that_starts_is_no_program() {
        for line in [
            "0, 4, 7, 700.00, 700.00, Disabled, Disabled, 16, 16, 0x0",
            "0, 4, 100, 700.00, 700.00, Disabled, Enabled, 16, 16, 0x0",
        ] {
            assert_eq!(in_use("a", &gpus(&[line]), ""), None, "{line}");
        }
    }

    #[test]
    fn what_slows_a_gpu_is_a_finding() {
        let slow = gpus(&["3, 0, 0, 350.00, 700.00, Enabled, Disabled, 8, 16, 0x0000000000000048"]);
        let codes: Vec<(String, String)> =
            findings("a", &slow).into_iter().map(|finding| (finding.code, finding.message)).collect();
        let of = |code: &str| {
            codes.iter().filter(|one| one.0 == code).map(|one| one.1.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(of("VERIFY-GPU-POWER"), ["GPU 3 of a: the power limit is 350 W, and 700 W by default"]);
        assert_eq!(
            of("VERIFY-GPU-PCIE"),
            ["GPU 3 of a: the PCIe link had 8 of 16 lanes before the benchmark"]
        );
        assert_eq!(of("VERIFY-GPU-CLOCKS").len(), 2);
        assert_eq!(codes.len(), 6, "{codes:?}");
    }
}
