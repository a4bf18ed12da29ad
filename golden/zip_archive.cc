#include "golden/zip_archive.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "golden/safetensors_header.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr std::string_view kLocalHeader = "PK\x03\x04";
constexpr std::string_view kDirectoryEntry = "PK\x01\x02";
constexpr std::string_view kDirectoryEnd = "PK\x05\x06";
constexpr std::string_view kZip64End = "PK\x06\x06";
constexpr std::string_view kZip64Locator = "PK\x06\x07";

constexpr int64_t kDirectoryEndBytes = 22;
constexpr int64_t kZip64LocatorBytes = 20;
constexpr int64_t kZip64EndBytes = 56;
constexpr int64_t kDirectoryEntryBytes = 46;
constexpr int64_t kLocalHeaderBytes = 30;
constexpr int64_t kMostDirectoryBytes = int64_t{1} << 28;
constexpr uint16_t kZip64Field = 1;
constexpr uint32_t kIn64 = 0xffffffff;  // the ZIP64 field has the number
constexpr size_t kZipBlockBytes = size_t{1} << 20;

uint64_t NumberAt(std::string_view bytes, size_t offset, size_t width) {
  uint64_t number = 0;
  for (size_t i = width; i-- > 0;) {
    number = number << 8 | static_cast<unsigned char>(bytes[offset + i]);
  }
  return number;
}

uint32_t Crc(uint32_t crc, const void* data, size_t bytes) {
  return static_cast<uint32_t>(crc32_z(crc, static_cast<const Bytef*>(data), bytes));
}

struct Directory {
  uint64_t entries = 0;
  uint64_t bytes = 0;
  uint64_t start = 0;
};

std::string RangeOf(const InputFile& file, int64_t start, int64_t bytes) {
  std::string text(static_cast<size_t>(bytes), '\0');
  file.ReadAt(start, text.data(), text.size());
  return text;
}

// The last record whose comment ends where the file ends.
std::optional<int64_t> FindDirectoryEnd(const InputFile& file) {
  const int64_t tail =
      std::min<int64_t>(file.size(), kDirectoryEndBytes + std::numeric_limits<uint16_t>::max());
  const std::string bytes = RangeOf(file, file.size() - tail, tail);
  for (int64_t at = tail - kDirectoryEndBytes; at >= 0; --at) {
    const auto i = static_cast<size_t>(at);
    if (std::string_view(bytes).substr(i, kDirectoryEnd.size()) != kDirectoryEnd) continue;
    const auto comment = static_cast<int64_t>(NumberAt(bytes, i + 20, 2));
    if (at + kDirectoryEndBytes + comment == tail) return file.size() - tail + at;
  }
  return std::nullopt;
}

// Takes the numbers that do not fit 32 bits from the ZIP64 field of an entry, in their order.
// False when the field does not have them.
bool TakeZip64(std::string_view extra, const std::vector<uint64_t*>& wanted) {
  while (extra.size() >= 4) {
    const auto id = static_cast<uint16_t>(NumberAt(extra, 0, 2));
    const size_t bytes = NumberAt(extra, 2, 2);
    if (bytes > extra.size() - 4) return false;
    if (id == kZip64Field) {
      size_t at = 4;
      for (uint64_t* number : wanted) {
        if (at + 8 > 4 + bytes) return false;
        *number = NumberAt(extra, at, 8);
        at += 8;
      }
      return true;
    }
    extra.remove_prefix(4 + bytes);
  }
  return wanted.empty();
}

}  // namespace

void ZipArchive::Refuse(const std::string& reason) const {
  throw Error(ErrorCode::kUnreadableFile, reason, file_.path());
}

void ZipArchive::Advance() const {
  if (progress_) progress_();
}

ZipArchive::ZipArchive(const InputFile& file, int64_t max_members, std::function<void()> progress)
    : file_(file), progress_(std::move(progress)) {
  const std::optional<int64_t> end = FindDirectoryEnd(file);
  if (!end) Refuse("it has no directory of a ZIP archive at its end: it is cut off, or damaged");
  const std::string record = RangeOf(file, *end, kDirectoryEndBytes);
  if (NumberAt(record, 4, 2) != 0 || NumberAt(record, 6, 2) != 0 ||
      NumberAt(record, 8, 2) != NumberAt(record, 10, 2)) {
    Refuse("it is a part of a ZIP archive of several disks, which is not read");
  }
  Directory directory = {NumberAt(record, 10, 2), NumberAt(record, 12, 4), NumberAt(record, 16, 4)};
  int64_t directory_end = *end;
  const bool needs_64 =
      directory.entries == 0xffff || directory.bytes == kIn64 || directory.start == kIn64;
  if (const int64_t at = *end - kZip64LocatorBytes; at >= 0) {
    const std::string locator = RangeOf(file, at, kZip64LocatorBytes);
    if (locator.starts_with(kZip64Locator)) {
      const uint64_t start = NumberAt(locator, 8, 8);
      if (at < kZip64EndBytes || start > static_cast<uint64_t>(at - kZip64EndBytes)) {
        Refuse("its ZIP64 record is outside of the file: it is damaged");
      }
      directory_end = static_cast<int64_t>(start);
      const std::string large = RangeOf(file, directory_end, kZip64EndBytes);
      if (!large.starts_with(kZip64End) || NumberAt(large, 16, 4) != 0 ||
          NumberAt(large, 20, 4) != 0 || NumberAt(large, 24, 8) != NumberAt(large, 32, 8)) {
        Refuse("its ZIP64 record is damaged");
      }
      directory = {NumberAt(large, 32, 8), NumberAt(large, 40, 8), NumberAt(large, 48, 8)};
    } else if (needs_64) {
      Refuse("its ZIP64 record is missing: it is damaged");
    }
  }
  if (directory.start > static_cast<uint64_t>(directory_end) ||
      directory.bytes != static_cast<uint64_t>(directory_end) - directory.start ||
      directory.bytes > static_cast<uint64_t>(kMostDirectoryBytes)) {
    Refuse(
        fmt::format("its directory of {} bytes at byte {} does not end at byte {}, where the "
                    "record behind it starts: it is damaged, or not only an archive",
                    directory.bytes, directory.start, directory_end));
  }
  if (directory.entries > static_cast<uint64_t>(max_members)) {
    Refuse(fmt::format("it has {} members, more than {}", directory.entries, max_members));
  }
  const auto start = static_cast<int64_t>(directory.start);
  const std::string entries = RangeOf(file, start, static_cast<int64_t>(directory.bytes));
  std::string_view rest = entries;
  std::set<std::string_view> names;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    Advance();
    if (rest.size() < static_cast<size_t>(kDirectoryEntryBytes) ||
        !rest.starts_with(kDirectoryEntry)) {
      Refuse(fmt::format("entry {} of its directory is damaged", i));
    }
    const uint64_t flags = NumberAt(rest, 8, 2);
    const uint64_t method = NumberAt(rest, 10, 2);
    uint64_t stored = NumberAt(rest, 20, 4);
    uint64_t bytes = NumberAt(rest, 24, 4);
    uint64_t local = NumberAt(rest, 42, 4);
    const size_t name_bytes = NumberAt(rest, 28, 2);
    const size_t extra_bytes = NumberAt(rest, 30, 2);
    const size_t whole = static_cast<size_t>(kDirectoryEntryBytes) + name_bytes + extra_bytes +
                         NumberAt(rest, 32, 2);
    if (rest.size() < whole) Refuse(fmt::format("entry {} of its directory is cut off", i));
    ZipMember member;
    member.name = rest.substr(static_cast<size_t>(kDirectoryEntryBytes), name_bytes);
    member.crc = static_cast<uint32_t>(NumberAt(rest, 16, 4));
    const std::string quoted = QuotedName(member.name);
    std::vector<uint64_t*> wanted;
    if (bytes == kIn64) wanted.push_back(&bytes);
    if (stored == kIn64) wanted.push_back(&stored);
    if (local == kIn64) wanted.push_back(&local);
    if (!TakeZip64(rest.substr(static_cast<size_t>(kDirectoryEntryBytes) + name_bytes, extra_bytes),
                   wanted)) {
      Refuse(fmt::format("the ZIP64 field of {} is damaged", quoted));
    }
    rest.remove_prefix(whole);
    if ((flags & 1) != 0) Refuse(fmt::format("{} is encrypted", quoted));
    if (method != 0 && method != 8) {
      Refuse(
          fmt::format("{} is compressed by method {}, and only deflate is read: save it with "
                      "numpy.savez or numpy.savez_compressed",
                      quoted, method));
    }
    member.is_deflated = method == 8;
    // No number is larger than the file but the one that inflating ends with: a byte gives at most
    // 1032 (zlib's technical details).
    constexpr uint64_t kMostRatio = 1032;
    const auto size = static_cast<uint64_t>(file.size());
    if (stored > size || local > directory.start || bytes > size * kMostRatio ||
        (!member.is_deflated && bytes != stored)) {
      Refuse(fmt::format("the sizes of {} in its directory cannot be: it is damaged", quoted));
    }
    member.stored_bytes = static_cast<int64_t>(stored);
    member.bytes = static_cast<int64_t>(bytes);
    const auto local_start = static_cast<int64_t>(local);
    if (local_start > start - kLocalHeaderBytes) {
      Refuse(fmt::format("{} has no header where its directory says", quoted));
    }
    const std::string header = RangeOf(file, local_start, kLocalHeaderBytes);
    member.start = local_start + kLocalHeaderBytes + static_cast<int64_t>(NumberAt(header, 26, 2)) +
                   static_cast<int64_t>(NumberAt(header, 28, 2));
    if (!header.starts_with(kLocalHeader) || NumberAt(header, 8, 2) != method ||
        NumberAt(header, 26, 2) != name_bytes || member.start > start - member.stored_bytes ||
        RangeOf(file, local_start + kLocalHeaderBytes, static_cast<int64_t>(name_bytes)) !=
            member.name) {
      Refuse(fmt::format("the header of {} is not what its directory says: it is damaged", quoted));
    }
    members_.push_back(std::move(member));
  }
  if (!rest.empty()) Refuse(fmt::format("{} bytes follow its directory's last entry", rest.size()));
  std::vector<const ZipMember*> by_place;
  for (const ZipMember& member : members_) {
    if (!names.insert(member.name).second) {
      Refuse(fmt::format("it has {} twice", QuotedName(member.name)));
    }
    by_place.push_back(&member);
  }
  std::sort(by_place.begin(), by_place.end(),
            [](const ZipMember* a, const ZipMember* b) { return a->start < b->start; });
  for (size_t i = 1; i < by_place.size(); ++i) {
    if (by_place[i - 1]->start + by_place[i - 1]->stored_bytes <= by_place[i]->start) continue;
    Refuse(fmt::format("{} and {} overlap: it is damaged", QuotedName(by_place[i - 1]->name),
                       QuotedName(by_place[i]->name)));
  }
  file.ThrowIfChanged();
}

size_t ZipArchive::Inflate(const ZipMember& member, std::byte* out, size_t bytes,
                           bool is_all) const {
  z_stream stream{};
  // No header of zlib's: the bytes of a ZIP archive are deflate's own.
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
  struct Ender {
    z_stream& stream;
    ~Ender() { inflateEnd(&stream); }
  } ender{stream};
  std::vector<Bytef> block(kZipBlockBytes);
  int64_t taken = 0;
  size_t made = 0;
  int state = Z_OK;
  // A byte more than is expected shows that there is one.
  Bytef beyond = 0;
  while (state == Z_OK) {
    Advance();
    if (stream.avail_in == 0) {
      const auto part = static_cast<size_t>(
          std::min<int64_t>(static_cast<int64_t>(kZipBlockBytes), member.stored_bytes - taken));
      if (part == 0) break;
      file_.ReadAt(member.start + taken, block.data(), part);
      taken += static_cast<int64_t>(part);
      stream.next_in = block.data();
      stream.avail_in = static_cast<uInt>(part);
    }
    const size_t left = bytes - made;
    if (left == 0 && !is_all) break;
    const size_t room = std::min(left, kZipBlockBytes);
    stream.next_out = left == 0 ? &beyond : reinterpret_cast<Bytef*>(out + made);
    stream.avail_out = left == 0 ? 1 : static_cast<uInt>(room);
    const uInt before = stream.avail_out;
    state = inflate(&stream, Z_NO_FLUSH);
    const size_t gained = before - stream.avail_out;
    if (left == 0 && gained > 0) {
      Refuse(fmt::format("{} inflates to more than the {} bytes that its directory says",
                         QuotedName(member.name), member.bytes));
    }
    made += gained;
    // No progress was possible: more input is needed.
    if (state == Z_BUF_ERROR) state = Z_OK;
  }
  const bool at_end = state == Z_STREAM_END && stream.avail_in == 0 && taken == member.stored_bytes;
  if ((state != Z_OK && state != Z_STREAM_END) || (is_all && (!at_end || made != bytes))) {
    Refuse(fmt::format("{} cannot be inflated: it is damaged", QuotedName(member.name)));
  }
  return made;
}

void ZipArchive::CheckCrc(const ZipMember& member, uint32_t crc) const {
  if (crc == member.crc) return;
  Refuse(fmt::format("{} has the CRC {:08x}, and its directory says {:08x}: it is damaged",
                     QuotedName(member.name), crc, member.crc));
}

std::string ZipArchive::Start(const ZipMember& member, size_t bytes) const {
  std::string start(std::min(bytes, static_cast<size_t>(member.bytes)), '\0');
  auto* out = reinterpret_cast<std::byte*>(start.data());
  if (member.is_deflated) {
    start.resize(Inflate(member, out, start.size(), false));
  } else {
    ReadAt(member, 0, out, start.size());
  }
  return start;
}

void ZipArchive::ReadAt(const ZipMember& member, int64_t offset, std::byte* out,
                        size_t bytes) const {
  KVCHECK_CHECK(
      !member.is_deflated && offset >= 0 && static_cast<int64_t>(bytes) <= member.bytes - offset,
      "bytes outside of a stored member");
  file_.ReadAt(member.start + offset, out, bytes);
  file_.ThrowIfChanged();
}

void ZipArchive::ReadAll(const ZipMember& member, std::byte* out) const {
  const auto bytes = static_cast<size_t>(member.bytes);
  if (member.is_deflated) {
    Inflate(member, out, bytes, true);
  } else {
    ReadAt(member, 0, out, bytes);
  }
  uint32_t crc = 0;
  for (size_t done = 0; done < bytes; done += kZipBlockBytes) {
    Advance();
    crc = Crc(crc, out + done, std::min(kZipBlockBytes, bytes - done));
  }
  CheckCrc(member, crc);
  file_.ThrowIfChanged();
}

void ZipArchive::CheckStored(const ZipMember& member) const {
  std::vector<std::byte> block(std::min(kZipBlockBytes, static_cast<size_t>(member.bytes)));
  uint32_t crc = 0;
  for (int64_t done = 0; done < member.bytes; done += static_cast<int64_t>(kZipBlockBytes)) {
    Advance();
    const size_t part = std::min(kZipBlockBytes, static_cast<size_t>(member.bytes - done));
    ReadAt(member, done, block.data(), part);
    crc = Crc(crc, block.data(), part);
  }
  CheckCrc(member, crc);
}

}  // namespace kvcheck
