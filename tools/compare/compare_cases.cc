// compare --cases, and compare --case with groups: many cases in one run and one report.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "reference/spec/error.h"
#include "tools/compare/case_list.h"
#include "tools/compare/compare_question.h"
#include "tools/compare/selection.h"
#include "tools/corridor/cases_file.h"
#include "tools/corridor/evaluate_case.h"
#include "tools/report/number_text.h"

namespace kvcheck {
namespace {

using FilePointer = std::shared_ptr<const StoredFile>;

// Files that several cases read are opened once, by the thread that outlives all others: the
// process that reads HDF5 ends with the thread that started it.
class SharedFiles {
 public:
  explicit SharedFiles(const std::vector<ListedCase>& cases) {
    constexpr size_t kMostOpen = 64;
    std::map<std::string, int64_t> uses;
    for (const ListedCase& one : cases) {
      for (const std::string& file : one.files.asked().files) {
        if (++uses[file] != 2 || open_.size() == kMostOpen) continue;
        Entry& entry = open_[file];
        try {
          entry.file = std::make_shared<const StoredFile>(file);
        } catch (const Error& error) {
          entry.error = error;
        }
      }
    }
  }

  // Errors: as StoredFile.
  FilePointer Get(const std::string& path) const {
    const auto found = open_.find(path);
    if (found == open_.end()) return std::make_shared<const StoredFile>(path);
    if (found->second.error) throw Error(*found->second.error);
    return found->second.file;
  }

 private:
  struct Entry {
    FilePointer file;
    std::optional<Error> error;
  };
  std::map<std::string, Entry> open_;
};

// The file, or the group of it. Inputs may lie in a file of their own without groups.
class OpenedFile {
 public:
  OpenedFile(FilePointer whole, const std::string& group, bool may_lack_groups)
      : whole_(std::move(whole)) {
    if (group.empty()) return;
    if (may_lack_groups && GroupsOf(whole_->source().index()).empty()) return;
    part_.emplace(*whole_, group);
  }
  const StoredFile& get() const { return part_ ? *part_ : *whole_; }

 private:
  FilePointer whole_;
  std::optional<StoredFile> part_;
};

// What is wrong with a file is said of its case.
Verdict JudgeListed(const ListedCase& one, const SharedFiles& files, int threads,
                    std::vector<std::string>* notes) {
  const CompareQuestion& asked = one.files.asked();
  try {
    const bool has_two = asked.files.size() > 1;
    const OpenedFile first(files.Get(asked.files.front()), one.group, has_two);
    std::optional<OpenedFile> second;
    if (has_two) second.emplace(files.Get(asked.files.back()), one.group, false);
    const StoredFile* other = second ? &second->get() : nullptr;
    one.files.CheckFiles(first.get(), other);
    return one.files.Judge(first.get(), other, threads, notes);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnreadableFile) throw;
    return WithoutJudging(Outcome::kIllegalCase,
                          fmt::format("{}: {}", error.context(), error.message()));
  }
}

// Notes of many cases: what is said alike of several is one line.
class ManyNotes {
 public:
  void Add(const ListedCase& one, const std::vector<std::string>& notes) {
    for (std::string note : notes) {
      if (!one.group.empty()) {
        const std::string group = "/" + one.group;
        for (size_t at = note.find(group); at != std::string::npos; at = note.find(group, at + 1)) {
          note.replace(at, group.size(), "/GROUP");
        }
      }
      auto [found, is_new] = counts_.try_emplace(note, Count{one.name, 0});
      if (is_new) order_.push_back(note);
      ++found->second.cases;
    }
  }

  void Tell(ResultSink* results) const {
    constexpr size_t kMost = 10;
    for (size_t i = 0; i < std::min(order_.size(), kMost); ++i) {
      const Count& count = counts_.at(order_[i]);
      results->AddNote(count.cases == 1 ? fmt::format("{}: {}", count.first, order_[i])
                                        : fmt::format("{} cases, {} the first: {}", count.cases,
                                                      count.first, order_[i]));
    }
    if (order_.size() > kMost) {
      results->AddNote(fmt::format("{} more notes of other cases", order_.size() - kMost));
    }
  }

 private:
  struct Count {
    std::string first;
    int64_t cases = 0;
  };
  std::map<std::string, Count> counts_;
  std::vector<std::string> order_;
};

// --include, --exclude and --shard, of names of cases. Errors: kSelection.
void Select(const CompareQuestion& asked, std::vector<ListedCase>* cases) {
  const NameFilter filter(asked);
  for (const auto& [option, globs] :
       {std::pair<const char*, const std::vector<Glob>&>{"--include", filter.include()},
        {"--exclude", filter.exclude()}}) {
    for (const Glob& glob : globs) {
      if (std::any_of(cases->begin(), cases->end(),
                      [&](const ListedCase& one) { return glob.Matches(one.name); })) {
        continue;
      }
      throw Error(ErrorCode::kSelection, fmt::format("'{}' matches no case", glob.text()), option);
    }
  }
  const Shard shard = asked.shard.empty() ? Shard() : ParseShard(asked.shard);
  std::erase_if(*cases, [&](const ListedCase& one) {
    return !filter.Selects(one.name) || !shard.Has("/" + one.name);
  });
}

// The case of the options in each group. Errors: kUnreadableFile; kSelection.
std::vector<ListedCase> CasesOfGroups(const CompareQuestion& asked) {
  const std::string& path = asked.files.back();
  const std::vector<std::string> groups = GroupsOf(StoredFile(path).source().index());
  const std::vector<Glob> globs = ParseGlobs(asked.groups);
  for (const Glob& glob : globs) {
    if (std::any_of(groups.begin(), groups.end(),
                    [&](const std::string& group) { return glob.Matches("/" + group); })) {
      continue;
    }
    throw Error(ErrorCode::kSelection,
                fmt::format("'{}' matches no group; the file has {}", glob.text(),
                            groups.empty()
                                ? "none: its tensors lie at the root"
                                : fmt::format("{}, the first '{}'",
                                              Plural(std::ssize(groups), "group"), groups.front())),
                path);
  }
  std::vector<ListedCase> cases;
  for (const std::string& group : groups) {
    if (!MatchesAny(globs, "/" + group)) continue;
    CompareQuestion one = asked;
    one.groups = {Glob::Of(group)};
    cases.push_back({group, FileCase(std::move(one)), group});
  }
  return cases;
}

}  // namespace

void CompareCases(const CompareQuestion& asked, ResultSink* results) {
  std::vector<ListedCase> cases =
      asked.cases.empty()
          ? CasesOfGroups(asked)
          : ParseCaseList(asked, ReadTextFile(asked.cases, asked.cancel), asked.cases);
  Select(asked, &cases);
  const SharedFiles files(cases);
  std::vector<std::vector<std::string>> notes(cases.size());
  results->Begin(std::ssize(cases));
  std::vector<PlannedCase> planned(cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    const ListedCase& one = cases[i];
    planned[i].result = one.files.Shown();
    planned[i].result.name = one.name;
    planned[i].is_large = IsLarge(one.files.c());
    planned[i].evaluate = [&, i](int threads) {
      return JudgeListed(cases[i], files, threads, &notes[i]);
    };
  }
  results->JudgeAll(std::move(planned), asked.judge.threads);
  ManyNotes many;
  for (size_t i = 0; i < cases.size(); ++i) many.Add(cases[i], notes[i]);
  many.Tell(results);
}

}  // namespace kvcheck
