//! The published study's numbers, as printed.

use serde_json::Value;

/// The published working-set study.
pub struct Published {
    /// Where it stands.
    pub source: String,
    disks: Vec<(f64, String)>,
    cells: Vec<(f64, Value)>,
    device: Vec<(String, f64, f64)>,
}

/// The engine's effective cache in the study: 80 % of 3305 MB.
const EFFECTIVE_CACHE_MB: f64 = 2644.0;

impl Published {
    /// As shipped with the program.
    pub fn load() -> Result<Published, String> {
        const TEXT: &str = include_str!("../../../../../published/working-set.json");
        let study: Value = serde_json::from_str(TEXT).map_err(|error| error.to_string())?;
        let disks = study["disks"].as_object().ok_or("published disks")?;
        let cells = study["cells"].as_array().ok_or("published cells")?;
        Ok(Published {
            source: study["source"].as_str().unwrap_or_default().to_string(),
            disks: disks
                .iter()
                .filter_map(|(name, disk)| Some((disk["iops_limit"].as_f64()?, name.clone())))
                .collect(),
            device: disks
                .iter()
                .filter_map(|(name, disk)| {
                    let number = |key: &str| disk[key].as_f64();
                    Some((name.clone(), number("fio_iops")?, number("fio_physical_reads_per_s")?))
                })
                .collect(),
            cells: cells
                .iter()
                .filter_map(|cell| {
                    Some((cell["data_and_index_gb"].as_f64()? * 1000.0 / EFFECTIVE_CACHE_MB, cell.clone()))
                })
                .collect(),
        })
    }

    /// The study's name of the disk with this gate.
    fn disk(&self, iops: f64) -> Option<&str> {
        self.disks.iter().find(|(limit, _)| *limit == iops).map(|(_, name)| name.as_str())
    }

    /// The study's cell nearest to a working set, if it is within three per cent.
    fn cell(&self, working_set: f64) -> Option<&Value> {
        let near = |(share, _): &&(f64, Value)| (share / working_set - 1.0).abs() < 0.03;
        self.cells.iter().find(near).map(|(_, cell)| cell)
    }

    /// Printed throughput, operations per second.
    pub fn throughput(&self, working_set: f64, iops: f64) -> Option<f64> {
        self.cell(working_set)?["throughput_ops_per_s"][self.disk(iops)?].as_f64()
    }

    /// Printed p99 in milliseconds, as a range; some cells print one for all disks.
    pub fn p99_ms(&self, working_set: f64, iops: f64) -> Option<(f64, f64)> {
        let printed = &self.cell(working_set)?["latency_p99_ms"];
        if let Some(all) = printed["all"].as_array() {
            return Some((all.first()?.as_f64()?, all.last()?.as_f64()?));
        }
        printed[self.disk(iops)?].as_f64().map(|ms| (ms, ms))
    }

    /// fio's operations and the device's reads per second, as printed for the disk with this gate.
    pub fn device(&self, iops: f64) -> Option<(f64, f64)> {
        let name = self.disk(iops)?;
        self.device.iter().find(|(disk, ..)| disk == name).map(|(_, fio, reads)| (*fio, *reads))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_numbers_are_found_by_working_set_and_gate() {
        let study = Published::load().unwrap();
        assert_eq!(study.throughput(0.92, 5000.0), Some(76_113.0));
        assert_eq!(study.throughput(1.82, 150.0), Some(737.95));
        assert_eq!(study.throughput(2.30, 150.0), None, "not printed");
        assert_eq!(study.p99_ms(0.92, 600.0), Some((0.40, 0.44)));
        assert_eq!(study.p99_ms(2.30, 150.0), Some((810.0, 810.0)));
        assert_eq!(study.throughput(1.0, 5000.0), None, "no such cell");
        assert_eq!(study.device(600.0), Some((134.0, 150.0)));
    }
}
