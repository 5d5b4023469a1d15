//! What happens while somebody waits for the device.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use persimmon_device::{Command, Geometry, Pending, Result, ZoneInfo, ZonedDevice};
use persimmon_sim::SimDevice;

pub type Aside = Box<dyn FnOnce() + Send>;

/// A device that does something aside, once, before a command that it waits for.
pub struct Interrupted {
    device: Arc<SimDevice>,
    aside: Mutex<Option<(When, Aside)>>,
}

type When = Box<dyn Fn(&Command) -> bool + Send>;

impl Interrupted {
    pub fn new(device: &Arc<SimDevice>) -> Arc<Interrupted> {
        Arc::new(Interrupted {
            device: Arc::clone(device),
            aside: Mutex::default(),
        })
    }

    pub fn before(&self, when: impl Fn(&Command) -> bool + Send + 'static, aside: Aside) {
        *self.aside.lock().unwrap() = Some((Box::new(when), aside));
    }

    /// Whether it was; it is not any more.
    pub fn was_done(&self) -> bool {
        self.aside.lock().unwrap().take().is_none()
    }
}

impl ZonedDevice for Interrupted {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
        self.device.report(zones)
    }

    fn submit(&self, command: Command) -> Pending {
        let aside = {
            let mut aside = self.aside.lock().unwrap();
            aside.take_if(|(when, _)| when(&command))
        };
        if let Some((_, aside)) = aside {
            aside();
        }
        self.device.submit(command)
    }
}
