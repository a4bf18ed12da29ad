// Owning handles of the HDF5 C library, and its errors as kvcheck's. Only .cc files of golden/
// include this.

#ifndef GOLDEN_HDF5_HANDLE_H_
#define GOLDEN_HDF5_HANDLE_H_

#include <hdf5.h>

#include <string>
#include <string_view>
#include <utility>

namespace kvcheck {

// An identifier and the function that releases it.
class Hdf5Handle {
 public:
  using Closer = herr_t (*)(hid_t);

  Hdf5Handle() = default;
  Hdf5Handle(hid_t id, Closer closer) : id_(id), closer_(closer) {}
  ~Hdf5Handle() { Reset(); }
  Hdf5Handle(Hdf5Handle&& other) noexcept
      : id_(std::exchange(other.id_, H5I_INVALID_HID)), closer_(other.closer_) {}
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept {
    if (this != &other) {
      Reset();
      id_ = std::exchange(other.id_, H5I_INVALID_HID);
      closer_ = other.closer_;
    }
    return *this;
  }

  hid_t get() const { return id_; }
  bool valid() const { return id_ >= 0; }
  // Negative when the library could not release it (a file: could not flush).
  herr_t Reset() {
    if (id_ < 0) return 0;
    return closer_(std::exchange(id_, H5I_INVALID_HID));
  }

 private:
  hid_t id_ = H5I_INVALID_HID;
  Closer closer_ = nullptr;
};

// Stops the library from printing, and from loading filter plugins that a file names. Cheap to
// repeat; every entry point of golden/ calls it first.
void PrepareHdf5();

// True in a child forked after the library was first used: it inherits the library's list of open
// files, but not their descriptors.
bool InheritedHdf5();

// The reason that the library gave last, in its words; empty when it gave none.
std::string LastHdf5Reason();

// Errors: always kUnreadableFile, with the library's reason.
[[noreturn]] void ThrowHdf5Error(std::string_view what, const std::string& path);

// The handle for `id`. Errors: kUnreadableFile when it is negative; `what` says what was tried.
Hdf5Handle OwnHdf5(hid_t id, Hdf5Handle::Closer closer, std::string_view what,
                   const std::string& path);

// Errors: kUnreadableFile when status is negative.
void CheckHdf5(herr_t status, std::string_view what, const std::string& path);

}  // namespace kvcheck

#endif  // GOLDEN_HDF5_HANDLE_H_
