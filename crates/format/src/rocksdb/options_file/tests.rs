use proptest::prelude::*;

use super::*;
use crate::DecodeErrorKind;

/// As RocksDB 7.8.3 lays a file out, with fewer keys.
const WRITTEN: &str = r#"# This is a RocksDB option file.
#
# For detailed file format spec, please refer to the example file

[Version]
  rocksdb_version=7.8.3
  options_file_version=1.1

[DBOptions]
  max_background_jobs=2
  max_background_flushes=-1
  paranoid_checks=true
  wal_recovery_mode=kPointInTimeRecovery
  

[CFOptions "default"]
  write_buffer_size=67108864
  blob_garbage_collection_age_cutoff=0.250000
  compression=kLZ4Compression
  
[TableOptions/BlockBasedTable "default"]
  filter_policy=bloomfilter:9.5:false
  block_size=4K
  

[CFOptions "we\#ird "n]\: \\x"]
  enable_blob_files=false # for now
  
[TableOptions/BlockBasedTable "we\#ird "n]\: \\x"]
  filter_policy=nullptr
  filter_policy=ribbonfilter:10:1
  "#;

fn parse(text: &str) -> Result<OptionsFile, DecodeError> {
    OptionsFile::parse(text.as_bytes())
}

use crate::error::DecodeError;

#[test]
fn a_family_whose_name_is_no_text_is_unsupported_and_not_damage() {
    let kind_of = |text: &str| {
        let raw: Vec<u8> = text.bytes().map(|byte| if byte == b'@' { 0xff } else { byte }).collect();
        OptionsFile::parse(&raw).unwrap_err().kind
    };
    let named = WRITTEN.replacen("we", "w@", 1);
    assert!(kind_of(&named) == DecodeErrorKind::Unsupported && kind_of("@") == DecodeErrorKind::Corrupt);
    assert_eq!(kind_of(&WRITTEN.replacen("=false", "=f@lse", 1)), DecodeErrorKind::Corrupt);
    // Whatever else stands on such a line is text whoever wrote it.
    for (said, rotten) in [
        ("[DBOptions]", "[DBOpt@ons]"),
        ("[CFOptions \"we", "[CFOpt@ons \"we"),
        ("[CFOptions \"we", "[@FOptions \"we"),
        ("[CFOptions \"default\"", "[CFOptions @default\""),
        ("[CFOptions \"default\"]", "[CFOptions \"default@]"),
        ("[CFOptions \"default\"]", "[CFOptions \"default\"@"),
        ("[TableOptions/BlockBasedTable ", "[TableOptions/BlockB@sedTable "),
    ] {
        assert!(WRITTEN.contains(said), "{said}");
        assert_eq!(kind_of(&WRITTEN.replacen(said, rotten, 1)), DecodeErrorKind::Corrupt, "{rotten}");
    }
}

#[test]
fn a_file_of_rocksdb_is_read() {
    let file = parse(WRITTEN).unwrap();
    assert_eq!(file.rocksdb_version(), Some("7.8.3"));
    assert_eq!(file.sections.len(), 6);
    let names: Vec<_> = file.family_names().collect();
    assert_eq!(names, ["default", r#"we#ird "n]: \x"#]);
    let db = file.database().unwrap();
    assert_eq!(db.get_u64("max_background_jobs"), Ok(Some(2)));
    assert_eq!(db.get_i64("max_background_flushes"), Ok(Some(-1)));
    assert!(db.get_u64("max_background_flushes").is_err());
    assert_eq!(db.get_bool("paranoid_checks"), Ok(Some(true)));
    assert_eq!(db.get("wal_recovery_mode"), Some("kPointInTimeRecovery"));
    assert_eq!(db.get_u64("no such key"), Ok(None));
    let family = file.family("default").unwrap();
    assert_eq!(family.get_f64("blob_garbage_collection_age_cutoff"), Ok(Some(0.25)));
    assert_eq!(family.get("compression"), Some("kLZ4Compression"));
    let table = file.table("default").unwrap();
    assert_eq!(table.get_u64("block_size"), Ok(Some(4096)));
    assert_eq!(table.get_bloom_bits(), Ok(Some(9.5)));
    assert_eq!(file.family(names[1]).unwrap().get_bool("enable_blob_files"), Ok(Some(false)));
    assert_eq!(file.table(names[1]).unwrap().get_bloom_bits(), Ok(Some(0.0)), "the first of two counts");
    assert!(file.family("other").is_none());
    assert_eq!(parse(&file.to_string()).unwrap(), file);
}

#[test]
fn what_is_printed_is_what_was_set() {
    let mut file = OptionsFile::new();
    file.table_mut("a: b").set("block_size", 4096);
    file.database_mut().set("max_background_jobs", 4);
    file.family_mut("a: b").set_bloom_bits(10.0);
    file.table_mut("default").set_bloom_bits(9.875);
    file.family_mut("default").set_f64("max_bytes_for_level_multiplier", 10.0);
    file.database_mut().set_string("wal_dir", "C:#\n");
    file.database_mut().set("max_background_jobs", 5);
    let printed = "# Options of an Esker store, in the format of RocksDB's options files.

[Version]
  rocksdb_version=7.8.3
  options_file_version=1.1

[DBOptions]
  max_background_jobs=5
  wal_dir=C\\:\\#\\n

[CFOptions \"default\"]
  max_bytes_for_level_multiplier=10.000000

[TableOptions/BlockBasedTable \"default\"]
  filter_policy=bloomfilter:9.875:false

[CFOptions \"a\\: b\"]
  filter_policy=bloomfilter:10:false

[TableOptions/BlockBasedTable \"a\\: b\"]
  block_size=4096
";
    assert_eq!(file.to_string(), printed);
    let mut read = parse(printed).unwrap();
    assert_eq!(read, file);
    assert_eq!(read.database().unwrap().get_string("wal_dir").as_deref(), Some("C:#\n"));
    read.remove_family("a: b");
    assert_eq!(read.family_names().collect::<Vec<_>>(), ["default"]);
    assert!(read.table("a: b").is_none());
}

#[test]
fn sections_are_added_where_rocksdb_wants_them() {
    let mut file = OptionsFile::of(Vec::new());
    file.table_mut("other");
    file.table_mut("default");
    file.database_mut();
    let titles: Vec<_> = file.sections.iter().map(|section| section.kind.to_string()).collect();
    assert_eq!(
        titles,
        [
            "[DBOptions]",
            "[CFOptions \"default\"]",
            "[TableOptions/BlockBasedTable \"default\"]",
            "[CFOptions \"other\"]",
            "[TableOptions/BlockBasedTable \"other\"]",
        ]
    );
    assert_eq!(parse(&file.to_string()).unwrap(), file);
}

#[test]
fn what_rocksdb_refuses_is_refused() {
    let refused = |lines: &[&str]| parse(&lines.join("\n")).unwrap_err();
    let (db, default) = ("[DBOptions]", "[CFOptions \"default\"]");
    assert!(parse(&[db, default].join("\n")).is_ok());
    assert_eq!(refused(&[db]).reason, "[CFOptions \"default\"] is missing");
    assert_eq!(refused(&[default]).reason, "[DBOptions] is missing");
    assert_eq!(refused(&[db, db, default]).offset, 12);
    assert!(refused(&[db, default, default]).reason.contains("twice"));
    assert!(refused(&[db, "[CFOptions \"a\"]", default]).reason.contains("default"));
    assert!(refused(&[db, default, "[TableOptions/BlockBasedTable \"a\"]"]).reason.contains("its family"));
    assert_eq!(refused(&[db, default, "[Surprise]"]).kind, DecodeErrorKind::Unsupported);
    assert_eq!(refused(&[db, default, "[TableOptions/ \"default\"]"]).kind, DecodeErrorKind::Unsupported);
    for statement in ["no equals sign", "=1", "[half a section"] {
        assert_eq!(refused(&[db, statement, default]).field, "statement");
    }
    assert!(refused(&["a=1", db, default]).reason.contains("before the first section"));
    assert_eq!(OptionsFile::parse(b"[DBOptions]\n\xff").unwrap_err().offset, 12);
}

#[test]
fn values_are_read_as_rocksdb_reads_them() {
    let mut section = OptionsFile::new().database_mut().clone();
    for (text, number) in [("0", 0), ("7k", 7 << 10), ("7M", 7 << 20), ("7g", 7 << 30), ("7T", 7 << 40)] {
        section.set("n", text);
        assert_eq!(section.get_u64("n"), Ok(Some(number)));
        assert_eq!(section.get_i64("n"), Ok(Some(number as i64)));
    }
    for text in ["", "k", "1 k", "1kk", "-1", "1.5", "18446744073709551616", "16777216T", "nullptr"] {
        section.set("n", text);
        assert!(section.get_u64("n").is_err(), "{text}");
    }
    for text in ["", "nan", "inf", "one"] {
        section.set("n", text);
        assert!(section.get_f64("n").is_err(), "{text}");
        assert!(section.get_bool("n").is_err(), "{text}");
    }
    for (text, bits) in [("bloomfilter:10:false", 10.0), ("bloomfilter:8", 8.0), ("rocksdb.BloomFilter:6.5", 6.5)] {
        section.set("filter_policy", text);
        assert_eq!(section.get_bloom_bits(), Ok(Some(bits)));
    }
    for text in ["ribbonfilter:10:-1", "bloomfilter", "bloomfilter:-3:false", "bloomfilter:nan", ""] {
        section.set("filter_policy", text);
        assert!(section.get_bloom_bits().is_err(), "{text}");
    }
    section.set_bloom_bits(0.0004);
    assert_eq!(section.get_bloom_bits(), Ok(Some(0.0)));
}

#[test]
fn notes_read_back_and_are_comments_to_others() {
    let mut file = OptionsFile::new();
    let family = file.family_mut("default");
    family.set_note("esker.separation", "at-write");
    family.set("min_blob_size", 100);
    let text = file.to_string();
    assert!(text.contains("\n  # esker.separation=at-write\n"), "{text}");
    let read = parse(&text).unwrap();
    assert_eq!(read, file);
    assert_eq!(read.family("default").unwrap().note("esker.separation"), Some("at-write"));
    assert_eq!(read.family("default").unwrap().get("esker.separation"), None);
    let others = text.replace("esker.separation", "separation");
    assert_eq!(parse(&others).unwrap().family("default").unwrap().note("separation"), None);
    file.family_mut("default").remove_note("esker.separation");
    assert!(!file.to_string().contains("at-write"));
}

/// Goal: so much is no work: it would take a minute if each key were looked for among all, or each family.
#[test]
fn very_many_keys_and_families_are_read_and_changed() {
    const COUNT: usize = 10_000;
    let mut text = "[DBOptions]\n[CFOptions \"default\"]\n".to_owned();
    (0..COUNT).for_each(|n| text += &format!("key{n}=1\n# esker.note{n}=2\n"));
    (0..COUNT).for_each(|n| {
        text += &format!("[CFOptions \"{n}\"]\n[TableOptions/BlockBasedTable \"{n}\"]\nblock_size={n}\n")
    });
    text += "[CFOptions \"last\"]\nkey0=3\nkey0=4\n# esker.note0=5\n";
    let mut file = parse(&text).unwrap();
    assert_eq!(file.family("default").unwrap().entries.len(), COUNT);
    let last = file.family("last").unwrap();
    assert_eq!((last.get("key0"), last.note("esker.note0"), last.entries.len()), (Some("3"), Some("5"), 1));
    for name in (0..2 * COUNT).map(|n| n.to_string()) {
        file.table_mut(&name).set("block_size", 7);
        assert_eq!(file.table(&name).unwrap().entries.len(), 1);
        assert!(file.family(&name).is_some());
    }
    file.retain_families(|name| name.ends_with('7') || name == DEFAULT_FAMILY);
    assert_eq!(file.family_names().count(), 2 * COUNT / 10 + 1);
    assert!(file.table("17").is_some() && file.table("18").is_none() && file.family("last").is_none());
}

/// Goal: wherever sections are put and taken away, each is found where it is, and of two about a family's tables the first.
#[test]
fn sections_are_found_after_others_were_put_before_them() {
    let mut file = parse(
        "[DBOptions]\n[CFOptions \"default\"]\n[CFOptions \"a\"]\n[CFOptions \"b\"]\n\
         [TableOptions/PlainTable \"a\"]\nof=plain\n[TableOptions/PlainTable \"b\"]\nof=plain\n",
    )
    .unwrap();
    file.table_mut("b").set("of", "blocks");
    file.table_mut("default").set("of", "default");
    for (family, of) in [("a", "plain"), ("b", "blocks"), ("default", "default")] {
        assert_eq!(file.table(family).unwrap().get("of"), Some(of));
        assert_eq!(file.family(family).unwrap().kind, SectionKind::Family(family.to_owned()));
    }
    file.remove_family("a");
    assert!(file.family("a").is_none() && file.table("a").is_none());
    assert_eq!(file.table_mut("b").get("of"), Some("blocks"));
    assert_eq!(file, parse(&file.to_string()).unwrap());
}

proptest! {
    #[test]
    fn strings_read_back(raw: String) {
        let escaped = escape(&raw);
        prop_assert!(!escaped.contains(['\n', '\r']));
        prop_assert_eq!(unescape(&escaped), raw);
    }

    #[test]
    fn families_read_back(names in prop::collection::btree_set("\\PC{0,12}|[\\\\#:\n\r\" \\[\\]]{0,6}", 0..4)) {
        let mut file = OptionsFile::new();
        for name in &names {
            file.table_mut(name).set("block_size", name.len());
        }
        prop_assert_eq!(parse(&file.to_string()).unwrap(), file);
    }

    #[test]
    fn parsing_is_total(raw in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = OptionsFile::parse(&raw);
    }

    #[test]
    fn a_damaged_file_parses_or_not(at in 0..WRITTEN.len(), byte: u8) {
        let mut raw = WRITTEN.as_bytes().to_vec();
        raw[at] = byte;
        if let Ok(file) = OptionsFile::parse(&raw) {
            prop_assert_eq!(parse(&file.to_string()).unwrap(), file);
        }
    }
}

/// Goal: no rotten byte of a section's title reads as a kind of section that only a later release has, or leaves what follows to the section before.
#[test]
fn a_rotten_byte_of_a_title_is_damage_or_within_a_name() {
    let mut file = OptionsFile::new();
    for name in ["default", "second"] {
        file.table_mut(name).set("block_size", "4096");
    }
    let raw = file.to_string().into_bytes();
    let titles = (0..raw.len()).filter(|at| {
        let line_at = raw[..*at].iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        raw[line_at] == b'['
    });
    let mut refused = 0;
    for (at, flipped) in titles.flat_map(|at| (0..8).map(move |bit| (at, 1u8 << bit)).chain([(at, 0xff)])) {
        let mut rotten = raw.clone();
        rotten[at] ^= flipped;
        match OptionsFile::parse(&rotten) {
            Err(error) => {
                let is_of_a_name = error.reason.contains("the name of a column family is not UTF-8");
                assert!(error.kind == DecodeErrorKind::Corrupt || is_of_a_name, "byte {at}, {flipped:#x}: {error}");
                refused += 1;
            }
            // Of a name, of the kind of tables, or a bracket that began a comment.
            Ok(read) => assert_eq!(read.sections.len(), file.sections.len(), "byte {at}, {flipped:#x}"),
        }
    }
    assert!(refused > 300, "{refused}");
}

/// Goal: whatever a byte of a name rots to, it is known for what it was; other names are names.
#[test]
fn a_rotten_byte_of_a_name_is_known_for_what_it_was() {
    let long = "a".repeat(40);
    for name in ["second", "a:b#c", "back\\slash", "line\nbreak", "mississippi", &long] {
        let written = escape(name).into_bytes();
        for (at, byte) in (0..written.len()).flat_map(|at| (0..0x80u8).map(move |byte| (at, byte))) {
            let mut rotten = written.clone();
            rotten[at] = byte;
            let found = unescape(std::str::from_utf8(&rotten).unwrap());
            assert!(is_rotten_name(&found, name) || found == name, "{name:?}, byte {at}: {found:?}");
        }
        assert!(!is_rotten_name(name, name), "{name:?} is whole");
    }
    for other in ["seco", "seconds", "sEcOnd", "first", ""] {
        assert!(!is_rotten_name(other, "second"), "{other:?}");
    }
    // Names may have 65,535 bytes; such strangers are told apart at once.
    let (long, longer) = ("a".repeat(60_000), "b".repeat(60_001));
    assert!((0..1000).all(|_| !is_rotten_name(&longer, &long)));
}

/// Goal: a sector of zeroes takes no line away unseen, wherever it lies; in the name of a family, which may be any bytes, it makes another of it.
#[test]
fn a_zeroed_part_is_damage() {
    let mut told = 0;
    for from in 0..WRITTEN.len() - 20 {
        let mut zeroed = WRITTEN.as_bytes().to_vec();
        zeroed[from..from + 20].fill(0);
        let begin = WRITTEN[..from].rfind('\n').map_or(0, |end| end + 1);
        let is_in_title = WRITTEN[begin..].starts_with('[') && !WRITTEN[from..from + 20].contains('\n');
        let parsed = OptionsFile::parse(&zeroed);
        assert!(parsed.is_err() || is_in_title, "{from}: {parsed:?}");
        told += usize::from(parsed.is_err());
    }
    assert!(told > WRITTEN.len() / 2, "{told}");
}
