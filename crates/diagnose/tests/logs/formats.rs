//! The wordings of each version: the names of networks, communicators, phases, plugins, from NCCL 2.3 to
//! 2.31.

use serde_json::{Value, json};

use crate::report;

const INFO: &str = "gpu-1:31:77 [0] NCCL INFO ";

fn of(messages: &[&str]) -> Value {
    report(&messages.iter().map(|message| format!("{INFO}{message}\n")).collect::<String>())
}

#[test]
fn the_chosen_network_by_version() {
    for (message, network) in [
        ("Using internal Network Socket", "Socket"),
        ("CUDA Dev 0[0], AWS Libfabric NIC distance :  SYS", "AWS Libfabric"),
        ("Using network IB", "IB"),
        ("Using network AWS Libfabric", "AWS Libfabric"),
        ("Using network NCCL RDMA Plugin v6", "NCCL RDMA Plugin v6"),
        ("Using network IBext_v8", "IBext_v8"),
        ("Assigned NET plugin AWS Libfabric to comm", "AWS Libfabric"),
        ("Using network IB-CAST", "IB-CAST"),
    ] {
        let report = of(&[message]);
        assert_eq!(report["ranks"][0]["announced"], network, "{message}");
        assert_eq!(report["networks"], json!([network]), "{message}");
        assert_eq!(report["verdict"]["fabric"], "unknown", "announced is not connected: {message}");
    }
}

/// `NET/IB` is also used for RoCE: only the list of its ports distinguishes them.
#[test]
fn ports_tell_roce_from_infiniband() {
    let edge = "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/1/GDRDMA";
    for (list, fabric) in [
        ("NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB ; OOB ib0:10.0.0.1<0>", "infiniband"),
        ("NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>", "roce"),
        ("NET/IB : Using [0]mlx5_0:1/IB/SHARP [1]mlx5_1:1/IB/SHARP [RO]; OOB ib0:10.0.0.1<0>", "infiniband"),
        (
            "NET/IB : Using [0]={[0] mlx5_2:1/RoCE, [1] mlx5_3:1/RoCE} [1]={[0] mlx5_4:1/RoCE, [1] mlx5_5:1/RoCE} [RO]; OOB eth0:10.0.0.1<0>",
            "roce",
        ),
        // Both kinds: the device in use decides.
        ("NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>", "roce"),
        ("NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>", "infiniband"),
    ] {
        assert_eq!(of(&[list, edge])["verdict"]["fabric"], fabric, "{list}");
    }
    assert_eq!(of(&[edge])["verdict"]["fabric"], "verbs", "without the list the link is not known");
}

/// EFA, Slingshot and TCP have the same name.
#[test]
fn the_provider_tells_what_libfabric_is() {
    for (provider, fabric) in [
        ("Selected Provider is efa", "efa"),
        ("Selected Provider is efa (found 4 nics)", "efa"),
        ("Selected provider is efa, fabric is efa-direct (found 32 nics)", "efa"),
        ("Selected Provider is tcp;ofi_rxm (found 2 nics)", "libfabric-tcp"),
        ("Selected Provider is sockets", "libfabric-tcp"),
        ("Selected Provider is cxi (found 4 nics)", "slingshot"),
        ("Selected Provider is psm3 (found 1 nics)", "omni-path"),
        ("Selected Provider is verbs;ofi_rxm (found 1 nics)", "libfabric-other"),
    ] {
        for name in ["AWS Libfabric", "Libfabric"] {
            let edge = format!("Channel 00/0 : 0[0] -> 8[0] [send] via NET/{name}/0");
            let report = of(&[&format!("NET/OFI {provider}"), &edge]);
            assert_eq!(report["verdict"]["fabric"], fabric, "{provider}");
        }
    }
    let report = of(&[
        "NET/OFI Initializing aws-ofi-nccl 1.16.2",
        "NET/OFI Selected provider is efa, fabric is efa (found 4 nics)",
    ]);
    assert_eq!(
        report["plugins"][0],
        json!({"name": "aws-ofi-nccl", "version": "1.16.2", "provider": "efa", "nics": 4})
    );
    assert_eq!(of(&["NET/OFI Using aws-ofi-nccl 1.4.0aws"])["plugins"][0]["version"], "1.4.0aws");
}

#[test]
fn communicators_by_version() {
    for (message, id, nnodes) in [
        ("comm 0x7f10 rank 3 nranks 16 cudaDev 3 nvmlDev 3 - Init COMPLETE", "unnamed-16-0", json!(null)),
        ("comm 0x7f10 rank 3 nranks 16 cudaDev 3 busId 1b0 - Init COMPLETE", "unnamed-16-0", json!(null)),
        (
            "comm 0x7f10 rank 3 nranks 16 cudaDev 3 busId 1b0 commId 0xabc - Init COMPLETE",
            "0xabc",
            json!(null),
        ),
        (
            "ncclCommInitRank comm 0x7f10 rank 3 nranks 16 cudaDev 3 nvmlDev 3 busId 1b0 commId 0xabc - Init START",
            "0xabc",
            json!(null),
        ),
        (
            "[Rank 3] ncclCommInitRankConfig comm 0x7f10 rank 3 nranks 16 cudaDev 3 nvmlDev 3 busId 1b0 commId 0xabc - Init COMPLETE",
            "0xabc",
            json!(null),
        ),
    ] {
        let report = of(&[message]);
        let comm = &report["communicators"][0];
        assert_eq!(
            (&comm["id"], &comm["nranks"], &comm["seen_ranks"]),
            (&json!(id), &json!(16), &json!([3])),
            "{message}"
        );
        assert_eq!(comm["nnodes"], nnodes, "{message}");
    }
    let split = of(&[
        "ncclCommInitRank comm 0x1 rank 3 nranks 16 cudaDev 3 nvmlDev 3 busId 1b0 commId 0xabc - Init COMPLETE",
        "ncclCommSplit comm 0x2 rank 1 nranks 4 cudaDev 3 nvmlDev 3 busId 1b0 parent 0x1 splitCount 2 color 7 key 3- Init START",
        "comm 0x2 rank 1 nRanks 4 nNodes 2 localRanks 2 localRank 1 MNNVL 0",
    ]);
    let comm = split["communicators"].as_array().unwrap().iter().find(|comm| comm["nranks"] == 4).unwrap();
    assert_eq!(
        (&comm["id"], &comm["parent"], &comm["nnodes"]),
        (&json!("0xabc/2/7"), &json!("0xabc"), &json!(2))
    );
}

#[test]
fn phases_in_the_words_of_each_version() {
    let complete = "ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1b0 commId 0xabc - Init COMPLETE";
    for (messages, phase) in [
        (vec!["Bootstrap: Using eth0:10.0.0.1<0>"], "bootstrap"),
        (
            vec![
                "ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1b0 commId 0xabc - Init START",
            ],
            "init",
        ),
        (vec![complete], "ready"),
        (vec![complete, "Connected all rings"], "rings"),
        (vec![complete, "Connected all rings, use ring PXN 0 GDR 1"], "rings"),
        (vec![complete, "Connected all rings", "Connected all trees"], "trees"),
        (vec![complete, "Connected binomial trees"], "trees"),
        (vec![complete, "Connected NVLS tree"], "trees"),
    ] {
        assert_eq!(of(&messages)["ranks"][0]["phase"], phase, "{messages:?}");
    }
    let stepping = format!("{INFO}{complete}\nstep 12 images/sec: 2100.6 +/- 1.2\n");
    assert_eq!(report(&stepping)["ranks"][0]["phase"], "stepping");
}

/// The flag of the rings is an AND over all ranks: one rank whose lines are missing has no GPUDirect.
#[test]
fn gpudirect_of_all_of_some_of_none() {
    let with = "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA";
    let without = "Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0";
    assert_eq!(of(&[with])["verdict"]["gdr"], "all");
    assert_eq!(of(&[with, "Connected all rings, use ring PXN 0 GDR 0"])["verdict"]["gdr"], "some");
    assert_eq!(of(&[with, without])["verdict"]["gdr"], "some");
    assert_eq!(of(&[without])["verdict"]["gdr"], "none");
    assert_eq!(of(&["Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"])["verdict"]["gdr"], "unknown");
}

/// `NET/IBext/0(8)`: 8 is the rank whose NIC is used, not a port.
#[test]
fn a_proxy_rank_is_no_device() {
    let pair = &of(&["Channel 01/0 : 0[0] -> 9[1] [send] via NET/IBext/3(8)/GDRDMA"])["pairs"][0];
    assert_eq!((&pair["pxn"], &pair["devices"]["send"]), (&json!(true), &json!([3])));
}

/// Both ends print a connection of a network, each with its own NIC; it is one pair, and each channel
/// counts once.
#[test]
fn both_ends_of_an_edge_are_one_pair() {
    let log = "a:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1b0 commId 0xabc - Init COMPLETE\n\
        b:1:1 [0] NCCL INFO ncclCommInitRank comm 0x9 rank 1 nranks 2 cudaDev 0 nvmlDev 0 busId 1b0 commId 0xabc - Init COMPLETE\n\
        a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA\n\
        b:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/3/GDRDMA\n\
        a:1:2 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[0] [send] via NET/IB/1/GDRDMA\n\
        a:1:2 [0] NCCL INFO Channel 00/1 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA/Shared\n";
    let report = report(log);
    assert_eq!(report["pairs"].as_array().unwrap().len(), 1);
    let pair = &report["pairs"][0];
    assert_eq!((&pair["channels"], &pair["shared"]), (&json!(3), &json!(true)));
    assert_eq!(pair["devices"], json!({"send": [0, 1], "receive": [3]}));
    assert_eq!(
        (&pair["global_from"], &pair["global_to"], &pair["comm"]),
        (&json!(0), &json!(1), &json!("0xabc"))
    );
    assert_eq!(pair["seen"], json!(["send", "receive"]));
}

/// Planned rings and trees are no connections; `/02` there is the number of channels.
#[test]
fn plans_are_no_connections() {
    for message in [
        "Channel 00/02 :    0   1   2   3",
        "Channel 00/32 :    0",
        "Ring 00 : 1 -> 0 -> 1",
        "Trees [0] 1/4/-1->0->-1 [1] 1/-1/-1->0->4",
        "24 coll channels, 16 nvls channels, 32 p2p channels, 2 p2p channels per peer",
    ] {
        let report = of(&[message]);
        assert_eq!(
            (&report["pairs"], &report["totals"]["torn_channel_lines"]),
            (&json!([]), &json!(0)),
            "{message}"
        );
    }
}

#[test]
fn versions_with_and_without_a_prefix() {
    assert_eq!(report("NCCL version 2.18.3+cuda12.1\n")["nccl_versions"], json!(["2.18.3+cuda12.1"]));
    assert_eq!(of(&["NCCL version 2.28.9+cuda13.0"])["nccl_versions"], json!(["2.28.9+cuda13.0"]));
    assert_eq!(
        report("[1,0]<stdout>:NCCL version 2.4.8+cuda10.1\n")["nccl_versions"],
        json!(["2.4.8+cuda10.1"])
    );
}

/// NCCL 2.30.7 prints the place of INFO messages too.
#[test]
fn a_place_before_the_message_is_skipped() {
    let report = of(&["init.cc:321 (commAlloc) Using network IB"]);
    assert_eq!(report["ranks"][0]["announced"], "IB");
}

/// Where `mpirun` starts one launcher on each node, all processes of a node have the number of their launcher.
#[test]
fn the_number_of_a_launcher_is_no_rank() {
    let log = |tag: fn(u32) -> String| -> String {
        let line = |rank: u32, text: String| {
            let (host, pid, device) = (rank / 2, 10 + rank, rank % 2);
            format!("{}n{host}:{pid}:{pid} [{device}] NCCL INFO {text}\n", tag(rank))
        };
        let joins = (0..4).map(|rank| {
            line(
                rank,
                format!(
                    "comm 0x1 rank {rank} nranks 4 cudaDev {} busId 1{rank} commId 0xa - Init COMPLETE",
                    rank % 2
                ),
            )
        });
        let sends = (0..4).map(|rank| {
            let next = (rank + 1) % 4;
            line(
                rank,
                format!("Channel 00/0 : {rank}[{}] -> {next}[{}] [send] via NET/IB/0", rank % 2, next % 2),
            )
        });
        joins.chain(sends).collect()
    };
    let pairs = |log: &str| -> Vec<(Value, Value)> {
        let report = report(log);
        let pairs = report["pairs"].as_array().expect("pairs").iter();
        pairs.map(|pair| (pair["global_from"].clone(), pair["global_to"].clone())).collect()
    };
    let plain = pairs(&log(|_| String::new()));
    assert_eq!(plain.first(), Some(&(json!(0), json!(1))));
    assert_eq!(pairs(&log(|rank| format!("[1,{rank}]<stdout>:"))), plain);
    assert_eq!(pairs(&log(|rank| format!("[1,{}]<stdout>:", rank / 2))), plain);
}
