// The content hash of a golden file: SHA-256 over the names, attributes, shapes and bytes of all
// objects, in a serialisation that does not depend on how HDF5 lays them out. golden/README.md
// defines it; golden/make/kvcheck_golden.py is the second implementation.

#ifndef GOLDEN_CONTENT_HASH_H_
#define GOLDEN_CONTENT_HASH_H_

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "golden/file_index.h"

namespace kvcheck {

using Sha256Digest = std::array<std::byte, 32>;

// SHA-256 of bytes that arrive in pieces.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Update(const void* data, size_t size);
  // Call once.
  Sha256Digest Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// "sha256:" and 64 hexadecimal digits. `data` has the digest of each dataset's bytes (row-major,
// little endian), by path; the root's attribute content_hash does not enter.
// Precondition: every dataset of the index has its digest.
std::string ContentHash(const FileIndex& index, const std::map<std::string, Sha256Digest>& data);

}  // namespace kvcheck

#endif  // GOLDEN_CONTENT_HASH_H_
