// Implementations that live in processes of their own and are named by --impl: an adapter's name, a
// folder of adapters/NAME with an executable file `run`; a Python file that defines an adapter; or
// a command line, which has a blank or a slash.

#ifndef TOOLS_CORRIDOR_ADAPTERS_H_
#define TOOLS_CORRIDOR_ADAPTERS_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/process/remote_process.h"

namespace kvcheck {

// A folder of adapters before all others.
inline constexpr const char* kAdaptersVariable = "KVCHECK_ADAPTERS";

// Words as a shell makes them of blanks, quotes and backslashes; nothing else has a meaning.
// Errors: kUsage for a quote that does not end, and for no word.
std::vector<std::string> SplitCommandLine(const std::string& text);

// Whether it is a command line, or a Python file, rather than a name: of this program, or of an
// adapter.
bool IsCommandLine(const std::string& impl);
// A file of the folder of the Python package kvcheck_adapter: "serve.py", "new_adapter.py".
// Errors: kUsage: it is not there.
std::string AdapterPackageFile(const std::string& name);
// What a process of this implementation is started by; nullopt: no adapter of this name.
// Errors: kUsage for a command line that is none, and for a Python file that is not there.
std::optional<std::vector<std::string>> AdapterCommand(const std::string& impl);
// Bytes of a name that is none, in a message: it may be anything.
inline constexpr size_t kMostNameShown = 80;
// Names of adapters that are there, in order.
std::vector<std::string> AdapterNames();
// For messages about unknown names: "adapters: mlx_lm; a Python file ...; a command line ...".
std::string AdaptersText();

// Starts it to ask, the first time. limits: of that process. Precondition: AdapterCommand(impl).
// Errors: kUnsupported, with what became of the process, where it does not greet.
const Greeting& GreetingOf(const std::string& impl, const RemoteLimits& limits = {});
// A process for this implementation, which starts with the first request: the one that greeted,
// where nobody else has it, or another one.
std::shared_ptr<RemoteProcess> AdapterProcess(const std::string& impl, const RemoteLimits& limits);
// Ends processes that nobody uses: before workers begin, which have their own.
void EndIdleAdapters();

}  // namespace kvcheck

#endif  // TOOLS_CORRIDOR_ADAPTERS_H_
