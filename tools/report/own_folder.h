// A folder under the temporary one that goes with the object.

#ifndef TOOLS_REPORT_OWN_FOLDER_H_
#define TOOLS_REPORT_OWN_FOLDER_H_

#include <string>

namespace kvcheck {

class OwnFolder {
 public:
  // Errors: as TemporaryFolder; kUnreadableFile where none can be made.
  OwnFolder();
  ~OwnFolder();
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace kvcheck

#endif  // TOOLS_REPORT_OWN_FOLDER_H_
