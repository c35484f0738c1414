use super::*;
use serde_json::json as j;
use weftrun_core::span::{json, yaml};

fn says(text: &str, wanted: &Json) -> Result<bool, SyntaxError> {
    Ok(same(&yaml(text)?.root, wanted))
}

/// Edits, and checks that the text before the first and after the last change is unchanged.
fn change(text: &str, by: impl Fn(&mut Json)) -> String {
    let document = yaml(text).unwrap();
    let mut wanted = document.root.to_json();
    by(&mut wanted);
    edit(text, &document, &wanted, says).unwrap_or_else(|blocked| panic!("{blocked:?} in\n{text}")).text
}

fn put(path: &'static str, value: Json) -> impl Fn(&mut Json) {
    move |data| {
        let (parent, key) = path.rsplit_once('/').unwrap();
        let parent = data.pointer_mut(parent).unwrap();
        match parent {
            Json::Object(map) => {
                map.insert(key.into(), value.clone());
            }
            Json::Array(items) if key == "-" => items.push(value.clone()),
            Json::Array(items) if key == "0+" => items.insert(0, value.clone()),
            Json::Array(items) => items[key.parse::<usize>().unwrap()] = value.clone(),
            _ => panic!("{path}"),
        }
    }
}

#[test]
fn block_maps_grow_at_their_end_and_keep_their_comments() {
    let text = "a:\n  b: 1 # one\n  # of b\n# of c\nc: 2\n";
    assert_eq!(change(text, put("/a/x", j!("1"))), "a:\n  b: 1 # one\n  x: '1'\n  # of b\n# of c\nc: 2\n");
    assert_eq!(
        change(text, put("/d", j!({"e": [1, {"f": true}]}))),
        text.to_owned() + "d:\n  e:\n  - 1\n  - f: true\n"
    );
    assert_eq!(change("a: 1", put("/b", j!(2))), "a: 1\nb: 2");
}

#[test]
fn lists_grow_in_their_own_indentation() {
    assert_eq!(
        change("e:\n- k: A\n  v: 1\nz: 1\n", put("/e/-", j!({"k": "B", "v": "2"}))),
        "e:\n- k: A\n  v: 1\n- k: B\n  v: '2'\nz: 1\n"
    );
    assert_eq!(
        change("e:\n    - k: A\nz: 1\n", put("/e/-", j!({"k": "B", "l": ["x"]}))),
        "e:\n    - k: A\n    - k: B\n      l:\n          - x\nz: 1\n"
    );
    assert_eq!(change("e:\n- mpirun\n- -np\n", put("/e/0", j!("/opt/mpirun"))), "e:\n- /opt/mpirun\n- -np\n");
    assert_eq!(change("e: # c\n  - a\n", put("/e/0+", j!("sh"))), "e: # c\n  - sh\n  - a\n");
    assert_eq!(change("e:\n- - a\n", put("/e/0/-", j!("b"))), "e:\n- - a\n  - b\n");
}

#[test]
fn flow_style_stays_flow_style() {
    assert_eq!(change("c: [mpirun, -np, '2'] # go\n", put("/c/0", j!("/m"))), "c: [/m, -np, '2'] # go\n");
    assert_eq!(
        change("r: {limits: {gpu: 8}}\n", put("/r/limits/efa", j!("32"))),
        "r: {limits: {gpu: 8, efa: '32'}}\n"
    );
    assert_eq!(change("e: []\n", put("/e/-", j!({"a": 1}))), "e:\n- a: 1\n");
    assert_eq!(change("e: {} # c\nf: 1\n", put("/e/a", j!(1))), "e: # c\n  a: 1\nf: 1\n");
    assert_eq!(change("e: [a, b,]\n", put("/e/-", j!("c"))), "e: [a, b, c,]\n");
}

#[test]
fn nothing_behind_a_colon_is_filled() {
    assert_eq!(change("a:\nb: 1\n", put("/a", j!({"x": 1}))), "a:\n  x: 1\nb: 1\n");
    assert_eq!(change("a: # why\nb: 1\n", put("/a", j!("v"))), "a: v # why\nb: 1\n");
    assert_eq!(change("a: ~\nb: 1\n", put("/a", j!(["x"]))), "a:\n- x\nb: 1\n");
    assert_eq!(change("m:\n  a:\nb: 1\n", put("/m/c", j!(1))), "m:\n  a:\n  c: 1\nb: 1\n");
}

#[test]
fn scalars_keep_their_quotes() {
    assert_eq!(
        change("a: 'x' # c\nb: \"y\"\nc: z\n", |d| {
            d["a"] = j!("it's");
            d["b"] = j!("q\"");
            d["c"] = j!("yes");
        }),
        "a: 'it''s' # c\nb: \"q\\\"\"\nc: 'yes'\n"
    );
}

#[test]
fn only_the_changed_line_of_a_block_text_changes() {
    let text = "s: |\n  one  \n\n   two\n  mpirun x\n \nt: 1\n";
    let new = change(text, |d| d["s"] = j!("one  \n\n two\n/m x\n"));
    assert_eq!(new, text.replace("mpirun x", "/m x"));
    let text = "l:\n- |-\n    one\n    mpirun";
    assert_eq!(change(text, |d| d["l"][0] = j!("one\n/m")), "l:\n- |-\n    one\n    /m");
    assert_eq!(change("s: >\n  a\n  b\nt: 1\n", |d| d["s"] = j!("a c\n")), "s: |\n  a c\nt: 1\n");
    assert_eq!(change("s: |\n  x\n", put("/t", j!(1))), "s: |\n  x\nt: 1\n");
    assert_eq!(change("m:\n  s: |\n    x", put("/m/t", j!(1))), "m:\n  s: |\n    x\n  t: 1");
}

#[test]
fn windows_line_ends_stay() {
    assert_eq!(
        change("a:\r\n  b: 1\r\nc: |\r\n  x\r\n", |d| {
            d["a"]["z"] = j!({"w": 1});
            d["c"] = j!("w\n");
        }),
        "a:\r\n  b: 1\r\n  z:\r\n    w: 1\r\nc: |\r\n  w\r\n"
    );
}

#[test]
fn json_stays_json() {
    let text = "{\n  \"a\": {\n    \"b\": 1\n  },\n  \"l\": [\"x\"], \"e\": {}\n}\n";
    let document = json(text).unwrap();
    let mut wanted = document.root.to_json();
    wanted["a"]["c"] = j!("yes");
    wanted["l"] = j!(["y", "z"]);
    wanted["e"] = j!({"k": [1]});
    let new = edit(text, &document, &wanted, |text, wanted| Ok(same(&json(text)?.root, wanted))).unwrap();
    assert_eq!(
        new.text,
        "{\n  \"a\": {\n    \"b\": 1,\n    \"c\": \"yes\"\n  },\n  \"l\": [\"y\", \"z\"], \"e\": {\"k\": [1]}\n}\n"
    );
}

#[test]
fn entries_can_be_taken_out() {
    let without =
        |key: &'static str| move |data: &mut Json| drop(data.as_object_mut().unwrap().shift_remove(key));
    assert_eq!(change("a: 1\nb: # c\n  x: 1\nc: 3\n", without("b")), "a: 1\nc: 3\n");
    assert_eq!(change("{a: 1, b: 2}\n", without("b")), "{a: 1}\n");
    assert_eq!(change("{a: 1, b: 2}\n", without("a")), "{b: 2}\n");
}

#[test]
fn shared_text_is_changed_once_where_all_places_get_the_same_and_written_out_where_they_differ() {
    let written_out = |text: &str, by: &dyn Fn(&mut Json)| {
        let document = yaml(text).unwrap();
        let mut wanted = document.root.to_json();
        by(&mut wanted);
        edit(text, &document, &wanted, says).unwrap()
    };
    let two = "a: &x # both\n  l: [1]\n  m: 2 # m\nb: *x\nc: 1\n";
    let once = written_out(two, &|d| {
        for key in ["a", "b"] {
            d[key]["m"] = j!(3);
            d[key]["p"] = j!([4]);
        }
    });
    assert_eq!(once.text, "a: &x # both\n  l: [1]\n  m: 3 # m\n  p:\n  - 4\nb: *x\nc: 1\n");
    assert_eq!(once.written_out, [""; 0]);
    let apart = written_out(two, &|d| d["b"]["m"] = j!(3));
    assert_eq!(apart.text, "a: &x # both\n  l: [1]\n  m: 2 # m\nb:\n  l:\n  - 1\n  m: 3\nc: 1\n");
    assert_eq!(apart.written_out, ["/b"]);
    let item = written_out("a:\n- &x {k: 1}\n- *x\n", &|d| d["a"][1]["k"] = j!(2));
    assert_eq!(item.text, "a:\n- &x {k: 1}\n- k: 2\n");
    let merged = written_out("b: &b\n  x: 1\no:\n  <<: *b\n  z: 1\n", &|d| d["o"]["x"] = j!(2));
    assert_eq!(
        (merged.text.as_str(), &merged.written_out[..]),
        ("b: &b\n  x: 1\no:\n  <<: *b\n  z: 1\n  x: 2\n", &["/o/x".to_owned()][..])
    );
    let both = written_out("b: &b\n  x: 1\no:\n  <<: *b\n  z: 1\n", &|d| {
        d["b"]["x"] = j!(2);
        d["o"]["x"] = j!(2);
    });
    assert_eq!(both.text, "b: &b\n  x: 2\no:\n  <<: *b\n  z: 1\n");
}

#[test]
fn shared_text_is_never_changed_behind_the_users_back() {
    let blocked = |text: &str, by: &dyn Fn(&mut Json)| {
        let document = yaml(text).unwrap();
        let mut wanted = document.root.to_json();
        by(&mut wanted);
        edit(text, &document, &wanted, says).unwrap_err()
    };
    let text = "base: &b\n  x: 1\nuse: *b\nover:\n  <<: *b\n  z: 1\n";
    let only_the_anchor = change(text, put("/base/x", j!(2)));
    assert_eq!(only_the_anchor, "base: &b\n  x: 2\nuse:\n  x: 1\nover:\n  <<: *b\n  z: 1\n  x: 1\n");
    assert_eq!(change(text, put("/over/k", j!(2))), text.to_owned() + "  k: 2\n");
    let twice = blocked("r:\n  a: 1\nr:\n  b: 1\n", &|d| d["r"]["c"] = j!(1));
    assert!(twice.why.contains("twice"), "{twice:?}");
}

#[test]
fn several_changes_at_one_place_nest_rightly() {
    let text = "c:\n- name: n\n  resources:\n    limits:\n      gpu: 8";
    let new = change(text, |d| {
        d["c"][0]["resources"]["limits"]["efa"] = j!("32");
        d["c"][0]["resources"]["requests"] = j!({"gpu": 8});
        d["c"][0]["env"] = j!([{"name": "A", "value": "1"}]);
        d["c"].as_array_mut().unwrap().push(j!({"name": "m"}));
        d["v"] = j!([]);
    });
    assert_eq!(
        new,
        "c:\n- name: n\n  resources:\n    limits:\n      gpu: 8\n      efa: '32'\n    requests:\n      gpu: 8\n  env:\n  - name: A\n    value: '1'\n- name: m\nv: []"
    );
}

#[test]
fn a_quoted_scalar_of_several_lines_keeps_the_lines_that_do_not_change() {
    let cases = [
        (
            "args:\n- \"set -e;\n    mpirun -np 16\n    ./a \\\"x\\\";\n    echo done\"\n",
            "args:\n- \"set -e;\n    /opt/mpirun -x A -np 16\n    ./a \\\"x\\\";\n    echo done\"\n",
        ),
        (
            "args:\n- 'set -e;\n    mpirun -np 16\n    ./a ''x'';\n\n    mpirun ./b\n    c'\nz: 1\n",
            "args:\n- 'set -e;\n    /opt/mpirun -x A -np 16\n    ./a ''x'';\n\n    /opt/mpirun -x A ./b\n    c'\nz: 1\n",
        ),
        (
            "args:\n- mpirun -np 16\n  ./a\n  b c\n- d\n",
            "args:\n- /opt/mpirun -x A -np 16\n  ./a\n  b c\n- d\n",
        ),
    ];
    for (text, wanted) in cases {
        let old = yaml(text).unwrap().root.to_json()["args"][0].as_str().unwrap().to_owned();
        let new = old.replace("mpirun", "/opt/mpirun -x A");
        assert_eq!(change(text, put("/args/0", j!(new))), wanted);
    }
    // A change that cannot be made inside the scalar replaces it.
    let text = "a: 'x\n  y'\n";
    let new = change(text, put("/a", j!("x: # y\u{7}")));
    assert_eq!(yaml(&new).unwrap().root.to_json()["a"], j!("x: # y\u{7}"));
}

#[test]
fn named_items_are_taken_out_with_their_lines() {
    let without = |names: &'static [&'static str], added: &'static [&'static str]| {
        move |data: &mut Json| {
            let list = data["e"].as_array_mut().unwrap();
            list.retain(|item| !names.contains(&item["name"].as_str().unwrap()));
            list.extend(added.iter().map(|name| j!({"name": name})));
        }
    };
    let block = "e:\n  # of a\n  - name: a\n    value: |\n      x\n  - name: b # b\n  - name: c\nz: 1\n";
    assert_eq!(change(block, without(&["a"], &[])), "e:\n  # of a\n  - name: b # b\n  - name: c\nz: 1\n");
    assert_eq!(
        change(block, without(&["b"], &["d"])),
        "e:\n  # of a\n  - name: a\n    value: |\n      x\n  - name: c\n  - name: d\nz: 1\n"
    );
    assert_eq!(change(block, without(&["a", "c"], &[])), "e:\n  # of a\n  - name: b # b\nz: 1\n");
    assert_eq!(change("e: [{name: a}, {name: b}]\n", without(&["a"], &["c"])), "e: [{name: b}, {name: c}]\n");
    assert_eq!(change("e: [{name: a}, {name: b}]\n", without(&["b"], &[])), "e: [{name: a}]\n");
    let three = "e: [{name: a}, {name: b}, {name: c}]\n";
    assert_eq!(change(three, without(&["b", "c"], &[])), "e: [{name: a}]\n");
    assert_eq!(change(three, without(&["a", "b"], &[])), "e: [{name: c}]\n");
    assert_eq!(change("e:\n- name: a\n- name: b", without(&["b"], &[])), "e:\n- name: a");
    let renamed = change("e:\n- name: a\n  v: 1\n- name: b\n", put("/e/0/name", j!("c")));
    assert_eq!(renamed, "e:\n- name: c\n  v: 1\n- name: b\n", "a new name in its place is a new name");
}

#[test]
fn entries_are_taken_out_while_others_are_added() {
    let swap = |gone: &'static [&'static str], new: &'static str| {
        move |data: &mut Json| {
            let map = data["a"].as_object_mut().unwrap();
            map.retain(|key, _| !gone.contains(&key.as_str()));
            map.insert(new.to_owned(), j!([1]));
        }
    };
    let block = "a:\n  b: 1\n  c: 2 # c\nz: 1\n";
    assert_eq!(change(block, swap(&["c"], "d")), "a:\n  b: 1\n  d:\n  - 1\nz: 1\n");
    assert_eq!(change("a:\n  b:\n    c: 2\nz: 1\n", swap(&["b"], "d")), "a:\n  d:\n  - 1\nz: 1\n");
    assert_eq!(change("a: {b: 1, c: 2}\n", swap(&["c"], "d")), "a: {b: 1, d: [1]}\n");
    assert_eq!(change("a: {b: 1, c: 2}\n", swap(&["b", "c"], "d")), "a: {d: [1]}\n");
}
