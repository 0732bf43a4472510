//! What is refused, and how.

use super::*;
use crate::ErrorKind;

fn open_with_property(name: &str, value: &[u8]) -> Result<Arc<Table>> {
    let env = SimDisk::new().env();
    let options = TableOptions::default();
    let mut writer = TableWriter::create(&*env.files, Path::new(PATH), NUMBER, &options, &identity())?;
    let (key, value_bytes) = entry("k", 1, ValueKind::Value, b"v");
    writer.add(&key, &value_bytes)?;
    writer.set_user_property(name, value.to_vec());
    writer.finish()?;
    open(&env)
}

#[test]
fn features_that_are_missing_are_named() {
    for (name, value, feature) in [
        ("rocksdb.external_sst_file.version", [3, 0, 0, 0].as_slice(), "version 3 of files that are taken in"),
        ("rocksdb.user.defined.timestamps.persisted", &[0], "timestamps"),
        ("rocksdb.udi.is.primary.index", &[1], "user-defined index"),
        ("rocksdb.embedded.blob.stats", &[1], "blobs within the table"),
        ("TitanDB.blob_discardable_size", &[1, 10, 40], "Titan's blob files"),
    ] {
        let error = open_with_property(name, value).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedFormat);
        assert!(error.to_string().contains(feature), "{error}");
        assert_eq!(error.path(), Some(Path::new(PATH)));
    }
    assert!(open_with_property("rocksdb.external_sst_file.version", &[1, 0, 0, 0]).is_ok());
    assert!(open_with_property("rocksdb.no.such.property", &[9]).is_ok());
}

#[test]
fn keys_out_of_order_are_refused_by_the_writer() {
    let env = SimDisk::new().env();
    let options = TableOptions::default();
    let mut writer = TableWriter::create(&*env.files, Path::new(PATH), NUMBER, &options, &identity()).unwrap();
    let (key, _) = entry("k", 5, ValueKind::Value, b"");
    writer.add(&key, b"").unwrap();
    for wrong in [
        entry("k", 5, ValueKind::Value, b""),
        entry("k", 6, ValueKind::Value, b""),
        entry("j", 1, ValueKind::Value, b""),
    ] {
        assert_eq!(writer.add(&wrong.0, b"").unwrap_err().kind(), ErrorKind::Corruption);
    }
    assert_eq!(writer.add(b"short", b"").unwrap_err().kind(), ErrorKind::Corruption);
    let (range, _) = entry("l", 6, ValueKind::RangeDeletion, b"");
    assert_eq!(writer.add(&range, b"m").unwrap_err().kind(), ErrorKind::InvalidArgument);
    writer.add(&entry("k", 4, ValueKind::Value, b"").0, b"").unwrap();
    writer.finish().unwrap();
    assert_eq!(open(&env).unwrap().properties().entry_count, 2);
}

#[test]
fn versions_that_are_not_written_are_refused_before_the_file_is_created() {
    let env = SimDisk::new().env();
    for format_version in [0, 1, 2, 8] {
        let options = TableOptions { format_version, ..TableOptions::default() };
        assert_eq!(write(&env, &options, &[]).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert!(env.files.metadata(Path::new(PATH)).is_err());
    }
}
