#include "golden/hdf5_handle.h"

#include <fmt/format.h>
#include <unistd.h>

#include "reference/spec/error.h"

namespace kvcheck {

namespace {

// The process that first used the library, and its forked children, which see the same value.
pid_t FirstProcess() {
  static const pid_t process = getpid();
  return process;
}

}  // namespace

bool InheritedHdf5() { return FirstProcess() != getpid(); }

void PrepareHdf5() {
  FirstProcess();
  // Before all else, and once: at exit the library would write again what a full disk has refused,
  // and does not survive that.
  static const herr_t left_alone = H5dont_atexit();
  static_cast<void>(left_alone);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  H5PLset_loading_state(0);
  // What the library frees it keeps for itself, up to tens of MiB.
  constexpr int kKeptBytes = 1 << 16;
  H5set_free_list_limits(kKeptBytes, kKeptBytes, kKeptBytes, kKeptBytes, kKeptBytes, kKeptBytes);
}

std::string LastHdf5Reason() {
  std::string reason;
  // Upward: the first entry is where the error arose.
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned n, const H5E_error2_t* error, void* out) -> herr_t {
        if (n == 0 && error->desc != nullptr) *static_cast<std::string*>(out) = error->desc;
        return 0;
      },
      &reason);
  return reason;
}

void ThrowHdf5Error(std::string_view what, const std::string& path) {
  const std::string reason = LastHdf5Reason();
  H5Eclear2(H5E_DEFAULT);
  throw Error(ErrorCode::kUnreadableFile,
              reason.empty() ? std::string(what) : fmt::format("{} ({})", what, reason), path);
}

Hdf5Handle OwnHdf5(hid_t id, Hdf5Handle::Closer closer, std::string_view what,
                   const std::string& path) {
  if (id < 0) ThrowHdf5Error(what, path);
  return Hdf5Handle(id, closer);
}

void CheckHdf5(herr_t status, std::string_view what, const std::string& path) {
  if (status < 0) ThrowHdf5Error(what, path);
}

}  // namespace kvcheck
