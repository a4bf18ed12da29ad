// Text that grows without bound while a run goes on and is wanted at its end: in memory up to
// kSpoolBytes, and from then on in a file that has no name and is gone with the process.

#ifndef TOOLS_REPORT_SPOOL_H_
#define TOOLS_REPORT_SPOOL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "reference/spec/error.h"

namespace kvcheck {

inline constexpr size_t kSpoolBytes = size_t{1} << 20;

class Spool {
 public:
  // beside: a path in the folder of the file, where a part as large as the spool has to fit anyway;
  // of what is no regular file (a pipe, "-") the file is in the folder for temporary files.
  explicit Spool(std::string beside) : beside_(std::move(beside)) {}
  ~Spool();
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;

  // Where it cannot be kept the run goes on, for its verdict, and Read says why.
  void Append(std::string_view text);
  // All of it, in order, in parts. Errors: kUnreadableFile with the system's reason.
  void Read(const std::function<void(std::string_view)>& take) const;
  bool empty() const { return memory_.empty() && on_disk_ == 0; }

 private:
  void Spill();

  std::string beside_;
  std::string memory_;  // behind what is on disk
  int descriptor_ = -1;
  int64_t on_disk_ = 0;  // bytes
  std::optional<Error> lost_;
};

}  // namespace kvcheck

#endif  // TOOLS_REPORT_SPOOL_H_
