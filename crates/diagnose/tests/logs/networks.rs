//! Evidence of a network, a version, a warning: the wordings of public logs.

use serde_json::{Value, json};

use crate::{codes_of, report};

const INFO: &str = "gpu-1:31:77 [0] NCCL INFO ";

fn of(messages: &[&str]) -> Value {
    report(&messages.iter().map(|message| format!("{INFO}{message}\n")).collect::<String>())
}

fn fabric_of(messages: &[&str]) -> Value {
    of(messages)["verdict"]["fabric"].clone()
}

#[test]
fn plugins_have_names_of_their_own() {
    for (name, fabric) in [
        ("gIB", "roce"),
        ("FasTrak", "fastrak"),
        ("GPUDirectTCPX_v7", "fastrak"),
        ("UCX", "ucx"),
        ("UCCL", "plugin"),
        ("IBext_v9", "verbs"),
        ("SPCX", "verbs"),
        ("Socket", "socket"),
    ] {
        let edge = format!("Channel 00/0 : 0[0] -> 8[0] [send] via NET/{name}/0");
        let report = of(&[&edge]);
        assert_eq!(report["verdict"]["fabric"], fabric, "{name}");
        assert_eq!(report["pairs"][0]["transport"], format!("NET/{name}"));
    }
}

#[test]
fn omni_path_is_not_infiniband() {
    let edge = "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0";
    for (list, fabric) in [
        ("NET/IB : Using [0]hfi1_0:1/IB ; OOB ib0:10.0.0.1<0>", "omni-path"),
        ("NET/IB : Using [0]hfi1_0:1/IB [1]hfi1_1:1/IB ; OOB ib0:10.0.0.1<0>", "omni-path"),
        ("NET/IB : Using [0]mlx5_0:1/IB ; OOB ib0:10.0.0.1<0>", "infiniband"),
    ] {
        assert_eq!(fabric_of(&[list, edge]), fabric, "{list}");
    }
}

/// TCP cannot do GPUDirect RDMA. Slingshot's interfaces are named `hsn`.
#[test]
fn gpudirect_tells_libfabric_where_no_provider_was_printed() {
    let with = "Channel 00/0 : 0[0] -> 8[0] [send] via NET/AWS Libfabric/0/GDRDMA";
    let without = "Channel 00/0 : 0[0] -> 8[0] [send] via NET/AWS Libfabric/0";
    assert_eq!(fabric_of(&[with]), "efa");
    assert_eq!(fabric_of(&[without]), "libfabric-other");
    assert_eq!(
        fabric_of(&["NET/OFI Selected Provider is tcp;ofi_rxm (found 1 nics)", with]),
        "libfabric-tcp"
    );
    assert_eq!(fabric_of(&["NCCL_SOCKET_IFNAME set by environment to hsn0,hsn1", with]), "slingshot");
    assert_eq!(fabric_of(&["NET/Socket : Using [0]hsn0:10.0.0.1<0>", with]), "slingshot");
}

#[test]
fn an_error_at_run_time_proves_the_network() {
    let warn = |text: &str| report(&format!("gpu-1:31:77 [0] {text}\n"));
    for (line, fabric) in [
        (
            "transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<4791> with status=12 opcode=0 len=0 vendor err 129",
            "verbs",
        ),
        (
            "nccl_net_ofi_rdma.c:500 NCCL WARN NET/OFI Request 0x7f00 completed with error. RC: 113. Error: Unreachable remote",
            "libfabric-other",
        ),
        // A NIC that could not be opened carries nothing.
        ("misc/ibvwrap.cc:84 NCCL WARN NET/IB : Unable to open device mlx5_3", "unknown"),
    ] {
        let report = warn(line);
        assert_eq!(report["verdict"]["fabric"], fabric, "{line}");
        assert!(report["verdict"]["ok"] != true, "{line}");
    }
}

#[test]
fn the_levels_of_2_32_are_records() {
    for level in ["ATTN", "ERROR"] {
        let report = report(&format!(
            "{INFO}Init\ngpu-1:31:77 [0] init.cc:12 (load) NCCL {level} NET/Plugin: Could not find: libnccl-net.so\n"
        ));
        assert_eq!(report["totals"]["nccl_lines"], 2, "{level}");
        assert_eq!(codes_of(&report), ["NCCL-PLUGIN-NOT-FOUND"], "{level}");
    }
    // A fallback that is only announced is no unexplained warning; an error is one.
    let text = |level| {
        format!("{INFO}Init\ngpu-1:31:77 [0] init.cc:12 (x) NCCL {level} something that no rule knows\n")
    };
    assert!(codes_of(&report(&text("ATTN"))).is_empty());
    assert_eq!(codes_of(&report(&text("ERROR"))), ["NCCL-WARNING"]);
    assert_eq!(report("gpu-1:31 NCCL DIAG [OK] driver 580.82\n")["totals"]["nccl_lines"], 1);
}

#[test]
fn versions_of_rccl_and_versions_that_two_ranks_wrote_at_once() {
    for (line, version) in [
        ("RCCL version : 2.20.5-HEAD:d380693+", "2.20.5-HEAD"),
        ("NCCL version 2.7.8+cuda10.2NCCL version 2.7.8+cuda10.2", "2.7.8+cuda10.2"),
        ("NCCL version 2.28.9+cuda13.0", "2.28.9+cuda13.0"),
    ] {
        assert_eq!(report(&format!("{line}\n"))["nccl_versions"], json!([version]), "{line}");
    }
}

/// `ok` means that all is well, which is unknown beside a warning that no rule explains.
#[test]
fn an_unknown_warning_is_a_finding_with_its_text() {
    let edge = format!("{INFO}Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA\n");
    assert_eq!(report(&edge)["verdict"]["ok"], true);
    let report = report(&format!("{edge}gpu-1:31:77 [0] misc/cpu.cc:7 NCCL WARN the moon is full\n"));
    assert_eq!(report["verdict"]["ok"], Value::Null);
    let finding =
        report["findings"].as_array().unwrap().iter().find(|f| f["code"] == "NCCL-WARNING").unwrap();
    assert!(finding["message"].as_str().unwrap().ends_with("the moon is full"), "{finding}");
}

/// Six lines are cited; the ranks are all that wrote one.
#[test]
fn a_finding_names_all_its_ranks() {
    let mut log = String::new();
    for rank in 0..40 {
        log.push_str(&format!(
            "host{0}:{1}:{1} [0] NCCL INFO ncclCommInitRank comm 0x7f{rank:02} rank {rank} nranks 40 cudaDev 0 nvmlDev 0 busId 1b0 commId 0xabc - Init COMPLETE\n\
             host{0}:{1}:{1} [0] ibvwrap.cc:9 NCCL WARN Call to ibv_modify_qp failed with error Invalid argument\n",
            rank,
            100 + rank,
        ));
    }
    let report = report(&log);
    let finding =
        report["findings"].as_array().unwrap().iter().find(|f| f["code"] == "IB-QP-TRANSITION").unwrap();
    assert_eq!(finding["ranks"].as_array().unwrap().len(), 40, "{finding}");
    assert!(finding["evidence"].as_array().unwrap().len() <= 6);
}

/// Old NCCL prints no id of a communicator: groups of two ranks on two nodes look alike.
#[test]
fn memory_is_shared_inside_a_node_only() {
    let processes = [("n1", 10, 0), ("n2", 20, 0), ("n2", 21, 1), ("n1", 11, 1)];
    let bus = |device: u32| 1000 * (device + 1);
    let mut log = String::new();
    let mut all_say = |text: &dyn Fn(&str, u32) -> String| {
        for (host, pid, device) in processes {
            log.push_str(&format!("{host}:{pid}:{pid} [{device}] NCCL INFO {}\n", text(host, device)));
        }
    };
    all_say(&|host, device| {
        let rank = device + if host == "n1" { 0 } else { 2 };
        format!("comm 0x1 rank {rank} nranks 4 cudaDev {device} busId {} - Init COMPLETE", bus(device))
    });
    all_say(&|_, device| {
        format!("comm 0x2 rank {device} nranks 2 cudaDev {device} busId {} - Init COMPLETE", bus(device))
    });
    all_say(&|_, device| {
        let other = 1 - device;
        format!("Channel 00 : {device}[{}] -> {other}[{}] via P2P/IPC", bus(device), bus(other))
    });
    let report = report(&log);
    let pairs = report["pairs"].as_array().expect("pairs");
    assert!(!pairs.is_empty());
    for pair in pairs {
        let (from, to) = (pair["global_from"].as_u64(), pair["global_to"].as_u64());
        if let (Some(from), Some(to)) = (from, to) {
            assert_eq!(from / 2, to / 2, "{pair}");
        }
    }
}
