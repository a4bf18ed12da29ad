#include "tools/report/own_folder.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "reference/spec/error.h"
#include "reference/spec/temporary_paths.h"
#include "tools/report/output_file.h"

namespace kvcheck {

OwnFolder::OwnFolder()
    : path_((std::filesystem::path(TemporaryFolder()) / "kvcheck.XXXXXX").string()) {
  if (mkdtemp(path_.data()) == nullptr) {
    throw Error(ErrorCode::kUnreadableFile,
                fmt::format("no folder can be made: {}", std::strerror(errno)), path_);
  }
  RememberTemporary(path_);
}

OwnFolder::~OwnFolder() { RemoveTemporary(path_); }

}  // namespace kvcheck
