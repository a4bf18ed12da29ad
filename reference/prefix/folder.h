// The folder of a case's disk tier: kvcheck's own, empty at the start, damaged between and gone at
// the end.

#ifndef REFERENCE_PREFIX_FOLDER_H_
#define REFERENCE_PREFIX_FOLDER_H_

#include <cstdint>
#include <string>

#include "reference/spec/prefix_case.h"

namespace kvcheck {

class PrefixFolder {
 public:
  // Errors: kUnreadableFile where none can be made.
  PrefixFolder();
  ~PrefixFolder();
  PrefixFolder(const PrefixFolder&) = delete;
  PrefixFolder& operator=(const PrefixFolder&) = delete;

  const std::string& path() const { return path_; }
  // Whether so many bytes more find room in it.
  bool HasRoomFor(int64_t bytes) const;
  // Damages files by their order of names: file `at` modulo how many there are; of cut and flip the
  // byte (at / files) modulo its size. False: there is no file, or no second one.
  // Errors: kUnreadableFile.
  bool Damage(FileDamage damage, int64_t at) const;

 private:
  std::string path_;
};

// Folders that are made from now on are said to be this process's, so that its parent can
// remove what it has left behind because it was killed.
void OwnPrefixFolders(int process);
void RemovePrefixFoldersOf(int process);

}  // namespace kvcheck

#endif  // REFERENCE_PREFIX_FOLDER_H_
