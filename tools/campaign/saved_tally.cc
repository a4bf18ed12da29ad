#include "tools/campaign/saved_tally.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exception>
#include <filesystem>
#include <functional>

#include "reference/spec/error.h"
#include "tools/corridor/cases_file.h"
#include "tools/report/output_file.h"
#include "tools/report/tool_version.h"

namespace kvcheck {
namespace {

constexpr std::chrono::seconds kSaveInterval{2};

// Another build may draw otherwise.
std::string BuildText() {
  struct stat program{};
  if (stat("/proc/self/exe", &program) != 0) return ToolVersion();
  return fmt::format("{} {} {}.{}", ToolVersion(), static_cast<int64_t>(program.st_size),
                     static_cast<int64_t>(program.st_mtim.tv_sec),
                     static_cast<int64_t>(program.st_mtim.tv_nsec));
}

}  // namespace

SavedTally::SavedTally(const std::string& folder, const Subject& subject,
                       const std::string& command, Progress* progress)
    : folder_(folder),
      identity_(fmt::format("kvcheck campaign 1\n{}\n{} {}\n{}\n", BuildText(),
                            subject.Implementation(), subject.Version(), command)),
      path_((std::filesystem::path(folder) / fmt::format(".{}-{:016x}.campaign",
                                                         CaseName(subject.Kind()),
                                                         std::hash<std::string>()(identity_)))
                .string()),
      progress_(progress),
      saved_(AttendedClock::now()) {}

FuzzTally SavedTally::Read() const {
  struct stat status{};
  if (stat(path_.c_str(), &status) != 0) return {};
  try {
    const std::string text = ReadTextFile(path_);
    if (!text.starts_with(identity_)) return {};
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    return DecodeTally(Message(bytes + identity_.size(), bytes + text.size()));
  } catch (const Error&) {
    // Damaged: the campaign begins anew.
    return {};
  }
}

void SavedTally::Note(const FuzzTally& tally) {
  const bool due = AttendedClock::now() - saved_ >= kSaveInterval;
  if (due || tally.failures.size() != saved_failures_) Save(tally);
}

void SavedTally::Save(const FuzzTally& tally) {
  saved_ = AttendedClock::now();
  saved_failures_ = tally.failures.size();
  const Message message = Encode(tally);
  std::string text = identity_;
  text.append(reinterpret_cast<const char*>(message.data()), message.size());
  try {
    made_folder_ = std::filesystem::create_directories(folder_) || made_folder_;
    WriteOutput(path_, text);
  } catch (const std::exception& error) {
    if (!told_) {
      progress_->Notice(
          fmt::format("kvcheck: {} could not be written, so that the same command would "
                      "begin anew: {}",
                      path_, error.what()));
    }
    told_ = true;
  }
}

void SavedTally::Remove() const {
  unlink(path_.c_str());
  // A campaign that found nothing leaves nothing.
  if (made_folder_) rmdir(folder_.c_str());
}

}  // namespace kvcheck
