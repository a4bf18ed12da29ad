// SIGINT, SIGTERM and SIGHUP (unless it was ignored, as by nohup) as a request to stop: the run
// reports what it has and exits with 130. A second signal of a kind ends the process at once.

#ifndef TOOLS_KVCHECK_INTERRUPT_H_
#define TOOLS_KVCHECK_INTERRUPT_H_

#include "tools/corridor/cancel.h"

namespace kvcheck {

void InstallInterruptHandler();
bool IsInterruptRequested();
// What commands hand to their work.
const Cancel& OnInterrupt();

}  // namespace kvcheck

#endif  // TOOLS_KVCHECK_INTERRUPT_H_
