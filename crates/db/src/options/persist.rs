#![allow(missing_docs, unused, clippy::todo)]
use std::collections::BTreeMap; use std::path::Path; use std::sync::Arc; use super::*; use crate::family::Family;
#[derive(Debug,Clone,Default)] pub(crate) struct ForeignOptions; #[derive(Debug,Default)] pub(crate) struct OptionsInFile { pub(crate) families: BTreeMap<String, Result<FamilyOptions>>, pub(crate) foreign: ForeignOptions }
impl OptionsInFile { pub(crate) fn parse(p:&Path,b:&[u8])->Result<Self>{Ok(Self::default())} }
pub(crate) fn print(o:&Options,f:&BTreeMap<u32,Arc<Family>>,x:&ForeignOptions)->String{String::new()}
