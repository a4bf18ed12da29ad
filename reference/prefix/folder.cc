#include "reference/prefix/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "reference/spec/error.h"
#include "reference/spec/temporary_paths.h"

namespace kvcheck {
namespace {

namespace fs = std::filesystem;

void Check(const std::error_code& error, const std::string& what, const fs::path& path) {
  if (error) {
    throw Error(ErrorCode::kUnreadableFile, fmt::format("{}: {}", what, error.message()),
                path.string());
  }
}

int owner = 0;  // a process

// What the names of a process's folders begin with.
std::string NameOf(int process) { return fmt::format("kvcheck-prefix-{}-", process); }

void FlipBit(const fs::path& path, uint64_t place) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto at = static_cast<std::streamoff>(place / 8);
  char byte = 0;
  file.seekg(at).get(byte);
  file.seekp(at).put(static_cast<char>(byte ^ (1 << place % 8)));
  if (!file) throw Error(ErrorCode::kUnreadableFile, "a byte cannot be changed", path.string());
}

}  // namespace

PrefixFolder::PrefixFolder() {
  std::error_code error;
  fs::path place = fs::temp_directory_path(error);
  Check(error, "there is no folder for temporary files", "TMPDIR");
  std::string name = (place / (NameOf(owner) + "XXXXXX")).string();
  if (mkdtemp(name.data()) == nullptr) {
    throw Error(ErrorCode::kUnreadableFile, "a folder for the disk tier cannot be made", name);
  }
  path_ = name;
  RememberTemporary(path_);
}

PrefixFolder::~PrefixFolder() { RemoveTemporary(path_); }

bool PrefixFolder::HasRoomFor(int64_t bytes) const {
  const fs::path path = fs::path(path_) / ".room";
  const std::vector<char> some(1 << 16, 'x');
  bool is_written = false;
  {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    for (int64_t left = std::max<int64_t>(1, bytes); left > 0 && file; left -= std::ssize(some)) {
      file.write(some.data(), std::min<int64_t>(left, std::ssize(some)));
    }
    file.flush();
    is_written = static_cast<bool>(file);
  }
  std::error_code ignored;
  fs::remove(path, ignored);
  return is_written;
}

void OwnPrefixFolders(int process) { owner = process; }

void RemovePrefixFoldersOf(int process) {
  std::error_code error;
  const fs::path place = fs::temp_directory_path(error);
  if (error) return;
  const std::string begin = NameOf(process);
  std::vector<fs::path> left;
  for (fs::directory_iterator it(place, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename().string().starts_with(begin)) left.push_back(it->path());
  }
  for (const fs::path& path : left) fs::remove_all(path, error);
}

bool PrefixFolder::Damage(FileDamage damage, int64_t at) const {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(path_, error), end; it != end && !error;
       it.increment(error)) {
    if (it->is_regular_file(error)) files.push_back(it->path());
  }
  Check(error, "the folder of the disk tier cannot be read", path_);
  if (files.empty()) return false;
  std::sort(files.begin(), files.end());
  const auto count = static_cast<uint64_t>(files.size());
  const auto place = static_cast<uint64_t>(at);
  const fs::path& file = files[place % count];
  const fs::path& other = files[(place + 1) % count];
  const auto bytes = static_cast<uint64_t>(fs::file_size(file, error));
  Check(error, "a file of the disk tier cannot be read", file);
  switch (damage) {
    case FileDamage::kCut:
      fs::resize_file(file, bytes == 0 ? 0 : place / count % bytes, error);
      break;
    case FileDamage::kFlip:
      if (bytes == 0) return false;
      FlipBit(file, place / count % (8 * bytes));
      break;
    case FileDamage::kSwap: {
      if (count < 2) return false;
      const fs::path aside = fs::path(path_) / ".swapped";
      fs::rename(file, aside, error);
      if (!error) fs::rename(other, file, error);
      if (!error) fs::rename(aside, other, error);
      break;
    }
    case FileDamage::kCopy:
      if (count < 2) return false;
      fs::copy_file(file, other, fs::copy_options::overwrite_existing, error);
      break;
    case FileDamage::kForeign:
      std::ofstream(file, std::ios::trunc | std::ios::binary) << "not a file of this cache\n";
      break;
  }
  Check(error, "a file of the disk tier cannot be changed", file);
  return true;
}

}  // namespace kvcheck
