//! Descriptions of a machine and of a profile, as TOML and JSON, and the plan of a few batches.

use graphmill_plan::{Hardware, Profile, plan};

use super::Answer;
use crate::{alloc::limited, input::Input, scratch::with_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"hardware.toml\n",
    b"hardware.json\n",
    b"profile.toml\n",
    b"profile.json\n",
    b"devices = { count = 2, memory = \"16G\", speed = 20 }\n",
    b"link = { bandwidth = 12e9, latency = 10e-6 }\n",
    b"peer_link = { bandwidth = 50e9 }\n",
    b"host = { cores = 32, memory = 137438953472 }\n",
    b"shared = true",
    b"sync = 0.5",
    b"batches = 2\n",
    b"hit_rates = [{ ratio = 0.5, rate = 0.9 }]\n",
    b"last_batch = 0.5\n",
    b"1e308",
    b"nan",
    b"18446744073709551615",
];

/// Largest number of batches and of devices that are simulated: the time is that of their product.
const MAX_SIMULATED: (u64, usize) = (64, 8);

/// One input: files of a machine and of a profile, in either notation.
pub fn run(data: &[u8]) -> Answer {
    let names = ["hardware.toml", "hardware.json", "profile.toml", "profile.json"];
    let input = Input::read(data, &names);
    with_files("plan_files", &input.files, |dir| {
        limited(input.unpacked, || {
            let path = |stem: &str| {
                let toml = format!("{stem}.toml");
                dir.join(if input.file(&toml).is_some() { toml } else { format!("{stem}.json") })
            };
            let hardware = Hardware::find(path("hardware").to_str().ok_or("the path is not UTF-8")?)?;
            let profile = Profile::open(&path("profile"))?;
            let (batches, devices) = MAX_SIMULATED;
            if profile.batches <= batches && hardware.devices.count <= devices {
                let _ = plan(hardware, profile)?.to_string();
            }
            Ok(())
        })
    })
}
