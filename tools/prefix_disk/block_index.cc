#include "tools/prefix_disk/block_index.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <cstring>
#include <random>
#include <utility>

#include "reference/spec/error.h"
#include "tools/prefix_disk/block_file.h"

namespace kvcheck {
namespace {

constexpr const char* kFile = "index.sqlite";
constexpr const char* kJournal = "index.sqlite-journal";
constexpr const char* kLayout = "kvcheck prefix index 1";

constexpr const char* kTables = R"(
  CREATE TABLE IF NOT EXISTS meta(name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
  CREATE TABLE IF NOT EXISTS blocks(
    number INTEGER PRIMARY KEY,
    key BLOB NOT NULL UNIQUE,
    before BLOB NOT NULL,
    bytes INTEGER NOT NULL,
    state INTEGER NOT NULL,
    sha256 BLOB NOT NULL,
    used INTEGER NOT NULL);
  CREATE INDEX IF NOT EXISTS blocks_before ON blocks(before);
  CREATE INDEX IF NOT EXISTS blocks_used ON blocks(used);
)";

std::string RandomDigits() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

std::string CheckOf(const std::string& epoch) {
  Sha256 hash;
  hash.Update(kLayout, std::strlen(kLayout));
  hash.Update(epoch.data(), epoch.size());
  return HexOf(hash.Finish());
}

}  // namespace

// A prepared statement, for one run.
class BlockIndex::Statement {
 public:
  Statement(BlockIndex* index, const char* sql) : index_(index) {
    index->Note(sqlite3_prepare_v2(index->db_, sql, -1, &statement_, nullptr));
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& Bind(int64_t value) {
    sqlite3_bind_int64(statement_, ++bound_, value);
    return *this;
  }
  Statement& Bind(const Sha256Digest& value) {
    sqlite3_bind_blob(statement_, ++bound_, value.data(), static_cast<int>(value.size()),
                      SQLITE_TRANSIENT);
    return *this;
  }
  Statement& Bind(const std::string& value) {
    sqlite3_bind_text(statement_, ++bound_, value.data(), static_cast<int>(value.size()),
                      SQLITE_TRANSIENT);
    return *this;
  }
  // True: there is a row.
  bool Step() {
    result_ = statement_ == nullptr ? SQLITE_ERROR : sqlite3_step(statement_);
    if (result_ != SQLITE_ROW && result_ != SQLITE_DONE) index_->Note(result_);
    return result_ == SQLITE_ROW;
  }
  bool Done() { return !Step() && result_ == SQLITE_DONE; }
  int64_t Int(int column) const { return sqlite3_column_int64(statement_, column); }
  bool Digest(int column, Sha256Digest* digest) const {
    if (sqlite3_column_bytes(statement_, column) != std::ssize(*digest)) return false;
    std::memcpy(digest->data(), sqlite3_column_blob(statement_, column), digest->size());
    return true;
  }
  std::string Text(int column) const {
    const auto* text = sqlite3_column_text(statement_, column);
    return text == nullptr ? "" : reinterpret_cast<const char*>(text);
  }
  // Columns: number, key, before, bytes, state, sha256. False: no block has these.
  bool Block(IndexedBlock* block) const {
    block->number = Int(0);
    block->bytes = Int(3);
    const int64_t state = Int(4);
    block->state = static_cast<optimized::BlockState>(state);
    return state >= 0 && state <= static_cast<int64_t>(optimized::BlockState::kCoded) &&
           Digest(1, &block->key) && Digest(2, &block->before) && Digest(5, &block->sha256);
  }

 private:
  BlockIndex* index_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
  int result_ = SQLITE_OK;
};

// What a full disk comes to here.
void BlockIndex::NoteRoom(int result) {
  const int kind = result & 0xff;
  const bool is_read = result == SQLITE_IOERR_READ || result == SQLITE_IOERR_SHORT_READ;
  if (kind == SQLITE_FULL || (kind == SQLITE_IOERR && !is_read)) {
    writes_->NoteTrouble(fmt::format("{} cannot be written: {}", kFile, sqlite3_errstr(result)));
  }
}

// A full disk or a failed write leaves the index as it was; anything else says that it is damaged.
void BlockIndex::Note(int result) {
  const int kind = result & 0xff;
  NoteRoom(result);
  if (kind == SQLITE_OK || kind == SQLITE_FULL || kind == SQLITE_NOMEM) return;
  if (kind == SQLITE_IOERR && result != SQLITE_IOERR_SHORT_READ) return;
  is_damaged_ = true;
}

BlockIndex::BlockIndex(FolderWrites* writes) : writes_(writes), vfs_(writes) {
  if (!Open()) Replace();
  if (db_ != nullptr) return;
  throw Error(ErrorCode::kUnreadableFile,
              "the index of kept prompts can neither be read nor made anew; is there room, and may "
              "this folder be written?",
              writes_->PathOf(kFile));
}

BlockIndex::~BlockIndex() { Close(); }

void BlockIndex::Close() {
  sqlite3_close(db_);
  db_ = nullptr;
}

bool BlockIndex::Execute(const char* sql) {
  const int result = sqlite3_exec(db_, sql, nullptr, nullptr, nullptr);
  writes_->ThrowIfDead();
  NoteRoom(result);
  return result == SQLITE_OK;
}

bool BlockIndex::ReadEpoch() {
  const auto value_of = [&](const std::string& name) {
    Statement statement(this, "SELECT value FROM meta WHERE name = ?");
    return statement.Bind(name).Step() ? statement.Text(0) : std::string();
  };
  std::string epoch = value_of("epoch");
  if (value_of("check") != CheckOf(epoch)) return false;
  epoch_ = std::move(epoch);
  return true;
}

bool BlockIndex::WriteEpoch(const std::string& epoch) {
  const std::string pairs[][2] = {{"epoch", epoch}, {"check", CheckOf(epoch)}};
  for (const auto& [name, value] : pairs) {
    Statement statement(this, "INSERT OR REPLACE INTO meta VALUES(?, ?)");
    if (!statement.Bind(name).Bind(value).Done()) return false;
  }
  return true;
}

bool BlockIndex::Open() {
  is_damaged_ = false;
  const std::string path = writes_->PathOf(kFile);
  if (sqlite3_open_v2(path.c_str(), &db_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE,
                      vfs_.name()) != SQLITE_OK) {
    return false;
  }
  sqlite3_extended_result_codes(db_, 1);
  // Of a file that somebody may have changed nothing is believed: no code of its schema runs, and
  // what is deleted is overwritten.
  sqlite3_db_config(db_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  const bool is_set =
      Execute(
          "PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON; PRAGMA secure_delete = ON; "
          "PRAGMA journal_mode = DELETE") &&
      Execute(writes_->sync() ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = OFF");
  if (!is_set) return false;
  bool is_whole = false;
  {
    Statement check(this, "PRAGMA integrity_check(1)");
    is_whole = check.Step() && check.Text(0) == "ok";
  }
  writes_->ThrowIfDead();
  // A damaged header may ask that the file be read only: nothing would be stored again.
  if (!is_whole || is_damaged_ || sqlite3_db_readonly(db_, "main") != 0) return false;
  bool is_new = false;
  {
    Statement count(this, "SELECT count(*) FROM sqlite_schema");
    is_new = count.Step() && count.Int(0) == 0;
  }
  if (is_new) {
    // In place of a damaged one, under the same weights.
    const std::string epoch = epoch_.empty() ? RandomDigits() : epoch_;
    const bool is_made = Transact([&] { return Execute(kTables) && WriteEpoch(epoch); });
    if (!is_made) return false;
  }
  return ReadEpoch() && Execute(
                            "SELECT number, key, before, bytes, state, sha256, used FROM blocks "
                            "LIMIT 0");
}

void BlockIndex::Replace() {
  Close();
  was_replaced_ = true;
  writes_->Remove(kJournal);
  writes_->Remove(kFile);
  if (Open()) return;
  Close();
  if (epoch_.empty()) epoch_ = RandomDigits();
}

template <typename F>
bool BlockIndex::Transact(F f) {
  if (db_ == nullptr) return false;
  is_damaged_ = false;
  bool is_done = Execute("BEGIN IMMEDIATE") && f();
  writes_->ThrowIfDead();
  if (is_done) is_done = Statement(this, "COMMIT").Done();
  writes_->ThrowIfDead();
  if (is_done) return true;
  if (sqlite3_get_autocommit(db_) == 0) Execute("ROLLBACK");
  return false;
}

bool BlockIndex::Find(const Sha256Digest& key, IndexedBlock* block) {
  if (db_ == nullptr) return false;
  Statement find(this,
                 "SELECT number, key, before, bytes, state, sha256 FROM blocks WHERE key = ?");
  return find.Bind(key).Step() && find.Block(block);
}

bool BlockIndex::Put(std::span<const IndexedBlock> blocks, int64_t used,
                     std::vector<int64_t>* replaced) {
  const auto put = [&] {
    replaced->clear();
    return Transact([&] {
      for (const IndexedBlock& block : blocks) {
        IndexedBlock old;
        if (Find(block.key, &old)) replaced->push_back(old.number);
        Statement insert(this, "INSERT OR REPLACE INTO blocks VALUES(?, ?, ?, ?, ?, ?, ?)");
        insert.Bind(block.number).Bind(block.key).Bind(block.before).Bind(block.bytes);
        insert.Bind(static_cast<int64_t>(block.state)).Bind(block.sha256).Bind(used);
        if (!insert.Done()) return false;
      }
      return true;
    });
  };
  if (put()) return true;
  if (!is_damaged_) return false;
  Replace();
  return put();
}

bool BlockIndex::Touch(std::span<const int64_t> numbers, int64_t used) {
  return Transact([&] {
    for (const int64_t number : numbers) {
      Statement touch(this, "UPDATE blocks SET used = ? WHERE number = ?");
      if (!touch.Bind(used).Bind(number).Done()) return false;
    }
    return true;
  });
}

void BlockIndex::ForEach(const std::function<void(const IndexedBlock&)>& f) {
  if (db_ == nullptr) return;
  Statement all(this, "SELECT number, key, before, bytes, state, sha256 FROM blocks");
  IndexedBlock block;
  while (all.Step()) {
    if (all.Block(&block)) f(block);
  }
}

int64_t BlockIndex::TotalBytes() {
  if (db_ == nullptr) return 0;
  Statement sum(this, "SELECT sum(bytes) FROM blocks");
  return sum.Step() ? sum.Int(0) : 0;
}

int64_t BlockIndex::LastUsed() {
  if (db_ == nullptr) return 0;
  Statement last(this, "SELECT max(used) FROM blocks");
  return last.Step() ? last.Int(0) : 0;
}

int64_t BlockIndex::LastNumber() {
  if (db_ == nullptr) return 0;
  Statement last(this, "SELECT max(number) FROM blocks");
  return last.Step() ? last.Int(0) : 0;
}

std::vector<int64_t> BlockIndex::DropOldest(int64_t most_bytes) {
  std::vector<int64_t> dropped;
  int64_t bytes = TotalBytes();
  if (bytes <= most_bytes) return dropped;
  const bool is_done = Transact([&] {
    while (bytes > most_bytes) {
      Statement oldest(this,
                       "SELECT number, bytes FROM blocks AS b WHERE NOT EXISTS (SELECT 1 FROM "
                       "blocks AS c WHERE c.before = b.key) ORDER BY used, number DESC LIMIT 1");
      if (!oldest.Step()) return false;
      dropped.push_back(oldest.Int(0));
      bytes -= oldest.Int(1);
      Statement drop(this, "DELETE FROM blocks WHERE number = ?");
      if (!drop.Bind(dropped.back()).Done()) return false;
    }
    return true;
  });
  if (!is_done) dropped.clear();
  return dropped;
}

void BlockIndex::Clear(bool next_epoch) {
  const std::string epoch = next_epoch ? RandomDigits() : epoch_;
  const bool is_done = Transact([&] {
    return Statement(this, "DELETE FROM blocks").Done() && (!next_epoch || WriteEpoch(epoch));
  });
  epoch_ = epoch;
  // What cannot be forgotten in place is forgotten with the file.
  if (!is_done) Replace();
}

}  // namespace kvcheck
