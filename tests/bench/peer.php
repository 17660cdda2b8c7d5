<?php
/*
 * peer: what one would write for the same job with PHP and SQLite, for
 * scripts/bench to compare with.  PHP-FPM runs it with opcache; the connection
 * to the database stays open from request to request.
 *
 * PEER_DB: the database, which has its table already.  PEER_TOKEN: the token
 * that is accepted.
 */
declare(strict_types=1);

const BUSY_S = 10;

function answer(int $status, array $body): never
{
	http_response_code($status);
	$text = json_encode($body, JSON_UNESCAPED_UNICODE |
	    JSON_UNESCAPED_SLASHES | JSON_THROW_ON_ERROR);
	header('Content-Type: application/json');
	header('Content-Length: ' . strlen($text));
	echo $text;
	exit;
}

function refuse(int $status, string $message): never
{
	answer($status, ['error' => $status, 'message' => $message]);
}

$header = $_SERVER['HTTP_AUTHORIZATION'] ?? '';
if (!hash_equals('Bearer ' . getenv('PEER_TOKEN'), $header))
	refuse(401, 'Unauthorized');
if ($_SERVER['REQUEST_METHOD'] !== 'POST')
	refuse(405, 'Method Not Allowed');
if (!str_starts_with($_SERVER['CONTENT_TYPE'] ?? '', 'application/json'))
	refuse(400, 'Bad Request');
$plant = json_decode(file_get_contents('php://input'));
if (!is_object($plant) || !is_int($plant->id ?? null) ||
    !is_string($plant->name ?? null) ||
    (property_exists($plant, 'tag') && !is_string($plant->tag)))
	refuse(400, 'Bad Request');

try {
	$db = new PDO('sqlite:' . getenv('PEER_DB'), options: [
		PDO::ATTR_PERSISTENT => true,
		PDO::ATTR_TIMEOUT => BUSY_S,
		PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION,
	]);
	/* The default of SQLite; with WAL it is what makes a commit durable. */
	$db->exec('PRAGMA synchronous=FULL');
	$values = [$plant->id, $plant->name, $plant->tag ?? null];
	$insert = $db->prepare('INSERT INTO plants VALUES(?, ?, ?) ' .
	    'ON CONFLICT(id) DO NOTHING');
	$insert->execute($values);
	$stored = $insert->rowCount() === 1;
	if (!$stored) {
		$same = $db->prepare('SELECT 1 FROM plants ' .
		    'WHERE id = ? AND name = ? AND tag IS ?');
		$same->execute($values);
		$stored = $same->fetchColumn() !== false;
	}
} catch (PDOException) {
	refuse(503, 'Service Unavailable');
}
if (!$stored)
	refuse(409, 'Conflict');
$body = ['name' => $plant->name];
if (isset($plant->tag))
	$body['tag'] = $plant->tag;
answer(200, $body);
