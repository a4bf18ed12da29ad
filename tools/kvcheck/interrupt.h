// SIGINT and SIGTERM as a request to stop: the run reports what it has and exits with 130. A second
// signal ends the process at once.

#ifndef TOOLS_KVCHECK_INTERRUPT_H_
#define TOOLS_KVCHECK_INTERRUPT_H_

namespace kvcheck {

// Thrown out of work that was cut short. Not an error: the report says that it is partial.
struct Interrupted {};

void InstallInterruptHandler();
bool IsInterruptRequested();
void ThrowIfInterrupted();

}  // namespace kvcheck

#endif  // TOOLS_KVCHECK_INTERRUPT_H_
