// The members of a ZIP archive, as numpy.savez writes them: stored or deflated, with ZIP64 records
// where they are large. Only these are read; what else the format has (encryption, other methods,
// several disks, bytes before the archive) is refused. Inflating is zlib's.
//
// Source: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 (records) and 4.5.3 (ZIP64).

#ifndef GOLDEN_ZIP_ARCHIVE_H_
#define GOLDEN_ZIP_ARCHIVE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "golden/input_file.h"

namespace kvcheck {

struct ZipMember {
  std::string name;
  bool is_deflated = false;
  uint32_t crc = 0;
  int64_t stored_bytes = 0;
  int64_t bytes = 0;  // inflated
  int64_t start = 0;  // the byte of the file at which its stored bytes start
};

class ZipArchive {
 public:
  // Reads the directory and every member's own header. The file must outlive it.
  // progress: called between steps that each end in bounded time; may be null.
  // Errors: kUnreadableFile: damaged, a name twice, members that overlap, more than max_members, or
  // what this reader does not take.
  ZipArchive(const InputFile& file, int64_t max_members, std::function<void()> progress);

  const std::vector<ZipMember>& members() const { return members_; }

  // The first `bytes` bytes of a member, fewer where it has fewer; nothing is checked of the rest.
  // Errors: kUnreadableFile.
  std::string Start(const ZipMember& member, size_t bytes) const;
  // All of a member into `out`, which has room for member.bytes; its CRC is checked.
  // Errors: kUnreadableFile.
  void ReadAll(const ZipMember& member, std::byte* out) const;
  // Bytes [offset, offset + bytes) of a member that is not deflated.
  void ReadAt(const ZipMember& member, int64_t offset, std::byte* out, size_t bytes) const;
  // Reads a member that is not deflated, and checks its CRC.
  void CheckStored(const ZipMember& member) const;

 private:
  [[noreturn]] void Refuse(const std::string& reason) const;
  void Advance() const;
  // Inflates until `bytes` bytes are there; returns how many there are.
  size_t Inflate(const ZipMember& member, std::byte* out, size_t bytes, bool is_all) const;
  void CheckCrc(const ZipMember& member, uint32_t crc) const;

  const InputFile& file_;
  std::function<void()> progress_;
  std::vector<ZipMember> members_;
};

}  // namespace kvcheck

#endif  // GOLDEN_ZIP_ARCHIVE_H_
