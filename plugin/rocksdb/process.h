// What belongs to one process. SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include <unistd.h>

#include <atomic>

namespace persimmon {

// A T that each process makes for itself and never destroys. A child of fork does not take its parent's: it has no volume open, and nobody
// there lets go of a lock that another thread of the parent held.
template <typename T>
T& OfThisProcess() {
  struct Owned {
    T value;
    const pid_t process = ::getpid();
  };
  static std::atomic<Owned*> current{new Owned};
  for (Owned* owned = current.load();;) {
    if (owned->process == ::getpid()) return owned->value;
    auto* fresh = new Owned;
    if (current.compare_exchange_strong(owned, fresh)) return fresh->value;
    delete fresh;
  }
}

}  // namespace persimmon
