//! Disks that people know by name, as data with their sources.

use super::Spec;
use crate::nearest::did_you_mean;
use serde::Deserialize;
use std::sync::OnceLock;

/// A disk with a name.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// What it is called here.
    pub name: String,
    /// What it is, in a line.
    pub about: String,
    /// Its abilities; the name is part of them.
    pub spec: Spec,
    /// Where the figures come from, and which of them are guesses.
    pub source: String,
}

impl Profile {
    /// As a file that [`Profile::of_toml`] reads, for `disk mount --profile FILE`.
    pub fn to_toml(&self) -> String {
        let mut table = toml::Table::new();
        for (key, value) in [
            ("name", self.name.clone()),
            ("about", self.about.clone()),
            ("spec", self.spec.to_string()),
            ("source", self.source.clone()),
        ] {
            table.insert(key.into(), value.into());
        }
        table.to_string()
    }

    /// Reads a profile from a file's text.
    ///
    /// # Errors
    /// What is wrong with it, with its line.
    pub fn of_toml(text: &str) -> Result<Profile, String> {
        let mut profile: Profile = toml::from_str(text).map_err(|error| error.to_string())?;
        profile.spec.name = Some(profile.name.clone());
        profile.spec.check().map_err(|error| error.to_string())?;
        Ok(profile)
    }
}

/// No profile has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no disk profile {name:?}{hint} (profiles: {})", names())]
pub struct UnknownProfile {
    /// The name that was given.
    pub name: String,
    /// The nearest one.
    pub hint: String,
}

fn names() -> String {
    profiles().iter().map(|profile| profile.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// All profiles, slow ones first within each group.
pub fn profiles() -> &'static [Profile] {
    static ALL: OnceLock<Vec<Profile>> = OnceLock::new();
    ALL.get_or_init(|| {
        #[derive(Deserialize)]
        struct File {
            profile: Vec<Profile>,
        }
        let file: File = toml::from_str(include_str!("profiles.toml")).expect("a test reads the file");
        let named = |mut profile: Profile| {
            profile.spec.name = Some(profile.name.clone());
            profile
        };
        file.profile.into_iter().map(named).collect()
    })
}

/// The profile of this name.
///
/// # Errors
/// There is none; the error names the nearest one.
pub fn profile(name: &str) -> Result<&'static Profile, UnknownProfile> {
    if let Some(found) = profiles().iter().find(|profile| profile.name.eq_ignore_ascii_case(name)) {
        return Ok(found);
    }
    let hint = did_you_mean(name, profiles().iter().map(|profile| profile.name.as_str()));
    Err(UnknownProfile { name: name.into(), hint })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Kind;
    use crate::units::Bytes;

    #[test]
    fn every_profile_is_a_disk_with_a_source() {
        for profile in profiles() {
            assert!(profile.about.len() > 10 && profile.source.len() > 20, "{}", profile.name);
            assert_eq!(profile.spec.name.as_ref(), Some(&profile.name));
            assert_eq!(profile.spec.to_string().parse::<Spec>().unwrap(), profile.spec);
            assert!(!profile.spec.is_unlimited());
        }
        let mut names: Vec<_> = profiles().iter().map(|p| &p.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), profiles().len());
    }

    #[test]
    fn a_misspelt_name_is_answered_with_the_nearest() {
        let error = profile("hdd-7000").unwrap_err();
        assert_eq!(error.hint, "; did you mean \"hdd-7200\"?");
        assert!(error.to_string().contains("gp3"), "{error}");
        assert_eq!(profile("NVMe").unwrap().name, "nvme");
    }

    /// What the sources say a disk does, its shape does.
    #[test]
    fn profiles_do_what_their_sources_say() {
        let rate = |name: &str, clients| {
            profile(name).unwrap().spec.ceiling(Kind::Read, Bytes::kib(4), clients).unwrap().0
        };
        let near = |got: f64, wanted: f64| assert!((got / wanted - 1.0).abs() < 0.05, "{got}, not {wanted}");
        near(rate("hdd-7200", 32), 78.0);
        near(rate("sas-15k", 32), 176.0);
        near(rate("gp2", 64), 300.0);
        near(rate("gp3", 64), 3000.0);
        near(rate("working-set-600", 64), 600.0);
        near(rate("ebs-1000", 20), 1084.5);
    }
}
