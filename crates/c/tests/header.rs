//! The header is what the sources say.

use std::path::Path;

/// What the sources call a pointer of some kind, for which C needs no name.
const NAMES: [&str; 5] = ["Out_", "Many_", "Text", "State", "Failure"];

/// `text` with the pointers themselves in place of their names, and without these.
fn without_names(mut text: String) -> String {
    while let Some((begin, kind, name)) = text.match_indices("\ntypedef ").find_map(|(at, typedef)| {
        let line = text[at + typedef.len()..].split(';').next()?;
        let (kind, name) = line.split_at(line.rfind('*')? + 1);
        NAMES.iter().any(|known| name.starts_with(known)).then(|| (at + 1, kind.to_owned(), name.to_owned()))
    }) {
        // With the comment before it, which says what the name is for.
        let mut from = begin;
        while let Some(line) = text[..from].lines().next_back().filter(|line| line.starts_with("//")) {
            from -= line.len() + 1;
        }
        let Some(end) = text[begin..].find(";\n") else { return text };
        let to = begin + end + 2;
        text.replace_range(from..to, "");
        for before in ["\n", "(", ", ", " "] {
            text = text.replace(&format!("{before}{name} "), &format!("{before}{kind}"));
        }
    }
    // Of several texts it is the pointers that are constant, too.
    text = text.replace("const const char **", "const char *const *");
    while text.contains("\n\n\n") {
        text = text.replace("\n\n\n", "\n\n");
    }
    text
}

/// Goal: whoever changes a function changes what C sees of it, and nobody has to do so by hand.
#[test]
fn the_header_is_made_of_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut made = Vec::new();
    cbindgen::Builder::new().with_crate(root).with_config(config).generate().unwrap().write(&mut made);
    let made = without_names(String::from_utf8(made).unwrap());
    let path = root.join("include/esker.h");
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    if made != there {
        let new = Path::new(env!("CARGO_TARGET_TMPDIR")).join("esker.h");
        std::fs::write(&new, &made).unwrap();
        let (path, new) = (path.display(), new.display());
        panic!("{path} is not what the sources say; if they are right: cp {new} {path}");
    }
}
