// compare --case: the inputs and the outputs of a case, in one file or in two, and no golden file.

#include <optional>
#include <utility>

#include "tools/compare/compare_question.h"
#include "tools/compare/file_case.h"

namespace kvcheck {

void CompareCase(const CompareQuestion& asked, ResultSink* results) {
  const FileCase one(asked);
  const StoredFile first(asked.files.front());
  std::optional<StoredFile> second;
  if (asked.files.size() > 1) second.emplace(asked.files.back());
  const StoredFile* other = second ? &*second : nullptr;
  one.CheckFiles(first, other);
  std::vector<std::string> notes;
  results->Begin(1);
  results->Judge(one.Shown(), [&] { return one.Judge(first, other, asked.judge.threads, &notes); });
  for (std::string& note : notes) results->AddNote(std::move(note));
  for (const StoredFile* file : {&first, other}) {
    if (file == nullptr) continue;
    if (auto note = NotNamedByIndex(*file)) results->AddNote(std::move(*note));
  }
}

}  // namespace kvcheck
